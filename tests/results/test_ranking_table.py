"""The ranking sorts by the metric, shows gaps with intervals and hides no failure."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tread_lab.analysis.paper_tables import to_latex
from tread_lab.cli.console import answers
from tread_lab.cli.show_ranking import show_ranking
from tread_lab.dashboards.contents import contents
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.results import trials_frame
from tread_lab.results.ranking_table import formatted, ranking, to_markdown
from tread_lab.tracking.comparison import note
from tread_lab.tracking.shown_run import ShownSweep


def test_ranking_has_one_text_everywhere(
    seeds_lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = formatted(ranking(trials_frame(seeds_lab, "placement")), GAP_HELDOUT)
    numbers = {text for text in texts["gap"] if text}
    assert len(numbers) == 4
    monkeypatch.setattr(answers, "width", 500)
    show_ranking(seeds_lab, "placement", as_json=False)
    page, note_of = contents(seeds_lab, "placement")["ranking"], seeds_lab.sweep("placement").plan()
    assert numbers <= {text for row in page.rows for text in row}
    for shown in (capsys.readouterr().out, note(ShownSweep(seeds_lab, note_of), experiment="1")):
        assert all(number in shown for number in numbers)


def test_each_trial_is_divided_by_its_own_baseline(metered_frame: pd.DataFrame) -> None:
    dense = metered_frame["role"] == "baseline"
    other = metered_frame[dense | (metered_frame["run"] == "2->8")].copy()
    other["run"], other["seed"] = other["run"] + "1", 1
    other["baseline"] = other["baseline"].map({"dense": "dense1"})
    other["cost/device_hours"] = [2.0, 1.0]
    frame = pd.concat([metered_frame, other], ignore_index=True)
    frame.attrs |= metered_frame.attrs
    share = ranking(frame).set_index("cell").loc["2->8 s=0.5", "hours"]
    assert share == pytest.approx((0.75 + 0.5) / 2)


def test_texts_from_records_cannot_break_a_table() -> None:
    texts = pd.DataFrame({"state": ["failed: a|b\nc", r"50% of \x_1 & more #2"]})
    assert to_markdown(texts).splitlines()[2] == r"| failed: a\|b c |"
    markup = pd.DataFrame({"cell": ["<b> [a](b) `c` a < b & &lt;"]})
    assert to_markdown(markup).splitlines()[2] == r"| &lt;b> [a]\(b) \`c\` a < b & &amp;lt; |"
    assert r"50\% of \textbackslash x\_1 \& more \#2" in to_latex(texts)


def test_equal_cells_share_a_rank() -> None:
    losses: list[float | None] = [float(k % 2) for k in range(61)]
    losses[3] = None
    names = [f"{k}->8" for k in range(1, 61)]
    table = ranking(made_frame("dense", *names, **{"heldout/loss": losses}))
    assert list(table["cell"]) == ["dense", *names[1::2], *[n for n in names[::2] if n != "3->8"],
                                    "3->8"]  # fmt: skip
    assert table["rank"].fillna(-1).tolist() == [1] * 31 + [32] * 29 + [-1]
