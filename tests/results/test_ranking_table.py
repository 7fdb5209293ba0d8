"""The ranking sorts by the metric, shows gaps with intervals and hides no failure."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tread_lab.analysis.paper_tables import to_latex
from tread_lab.results.ranking import ranking, to_markdown


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
