"""Claims about a sweep's folder: its plan, what was suggested and spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.config.errors import UserError
from tread_lab.config.labels import Tree, Trial
from tread_lab.records.sweep_folder import (
    Stopwatch,
    SweepFolder,
    hours_text,
    read_plan,
)

TEXT = """{
 "format": 2,
 "name": "s",
 "question": "Where?",
 "experiment": "tiny",
 "evaluate": [{"kind": "heldout_loss", "images": 8}],
 "sources": {"sweep": {"seeds": [0]}, "experiment": {"name": "tiny"}},
 "excluded": [{"rule": "start < end", "count": 2, "examples": [{"start": 3, "end": 2}]}],
 "search": {"sampler": "tpe"},
 "space": [{"start": 0}, {"start": 1}],
 "created": 1.5,
 "trials": [
  {"role": "baseline", "cell": {}, "seed": 0, "spec": {"train": {"steps": 5}}, "run": "d", "baseline": null},
  {"role": "trial", "cell": {"start": 0}, "seed": 0, "spec": {"train": {"steps": 5}}, "run": "a", "baseline": "d"}
 ]
}
"""  # noqa: E501


def trial(run: str, baseline: str | None = None, **spec: object) -> Trial[Tree]:
    return Trial("trial", {}, 0, {"train": {"steps": 5}, **spec}, run, baseline)


def test_plan_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    assert read_plan(path) is None
    path.write_text(TEXT)
    plan = read_plan(path)
    assert plan is not None and plan.text() == TEXT
    assert plan.trials[1] == Trial("trial", {"start": 0}, 0, {"train": {"steps": 5}}, "a", "d")
    assert plan.excluded[0].rule == "start < end"
    assert plan.evaluations_as_written == [{"heldout_loss": {"images": 8}}]


@pytest.mark.parametrize("text", ["[]", TEXT.replace('"format": 2', '"format": 1')])
def test_plan_of_another_format_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UserError, match=r"plan\.json: must have format 2"):
        read_plan(tmp_path / "plan.json")


def test_sessions_add_up_and_are_recorded(tmp_path: Path, clock: Any) -> None:
    sweep = SweepFolder(tmp_path)
    for _ in range(2):
        watch = Stopwatch(sweep)
        clock.now += 10
        watch.note()  # too early
        watch.note(now=True)
        clock.now += 16
        watch.note()
    assert sweep.seconds_spent() == Stopwatch(sweep).seconds == 52.0
    assert hours_text(sweep, None) == "" and hours_text(sweep, 1) == "1 h (0.014 h spent)"
