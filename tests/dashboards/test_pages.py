"""The server's answers about a sweep as a whole, address by address."""

from __future__ import annotations

import json

from tread_lab.dashboards.pages import Pages
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab


def test_answers_are_json_and_count_every_run(one_of_four: tuple[str, Lab, str]) -> None:
    _, lab, sweep = one_of_four
    pages = Pages(lab)
    pages.live(sweep).snapshot(wait=60)
    tree, frame = pages.sweep(sweep), trials_frame(lab, sweep)
    assert sum(tree["counts"].values()) == frame["run"].nunique()
    assert len(tree["cells"]["state"]) == frame.groupby(["role", "cell"]).ngroups
    (line,) = pages.lab_page()
    assert line["counts"] == tree["counts"]
    answers = [tree, line, *(pages.cell(sweep, number) for number in "01")]
    answers += [pages.sweep(sweep, metric=tree["metrics"][-1])["cells"]]
    json.dumps(answers, default=str, allow_nan=False)
