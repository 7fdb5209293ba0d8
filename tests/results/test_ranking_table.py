"""The ranking sorts by the metric, shows gaps with intervals and hides no failure."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.four_sweeps import made_frame
from tread_lab.analysis.paper_tables import to_latex
from tread_lab.results.ranking_table import formatted, ranking, to_markdown


def test_device_hours_stand_beside_flops(paper_frame: pd.DataFrame) -> None:
    table = ranking(paper_frame).set_index("cell")
    assert table.loc["dense", "hours"] == 1.0
    assert table.loc["2->8 s=0.5", "hours"] == pytest.approx(46 / 60)
    assert "hours" not in ranking(paper_frame.drop(columns="cost/device_hours"))


@pytest.mark.parametrize(
    ("parents", "flops"), [([0] * 3, 0.5), ([9] * 3, 0.5), ([0, 9, 9], 2.75), ([0, None, 9], 0.5)]
)
def test_unequal_parents_count_as_cost(parents: list[float | None], flops: float) -> None:
    own = [4.0, 2.0, 3.0]
    whole = [None if p is None else p + x for p, x in zip(parents, own)]
    costs = {"cost/train_flops": own, "cost/family_flops": whole, "cost/device_hours": own}
    frame = made_frame("dense", "2->8", "0->4", **{"fd@1k": [3.0, 2.0, 1.0]}, **costs)
    table = ranking(frame, "fd@1k").set_index("cell")
    assert table.loc["2->8", "flops"] == flops
    assert ("hours" in table) == (flops == 0.5)  # hours of parents are not known


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


def test_one_disturbed_seed_marks_its_cell(
    seeds_frame: pd.DataFrame,
) -> None:
    frame = seeds_frame.copy()
    frame["disturbed"] = (frame["cell"] == "2->8 s=0.5") & (frame["seed"] == 1)
    texts = formatted(ranking(frame), "gap/heldout")
    busy = texts[texts["device-hours / dense"].str.endswith(" (disturbed)")]
    assert busy["cell"].tolist() == ["2->8 s=0.5"]


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


def test_metric_without_direction_has_no_rank() -> None:
    frame = made_frame(
        "dense", "2->8", "0->4", **{"gap/train": [None, 2.0, 1.0], "is@1k": [1.0, 2.0, 3.0]}
    )
    by_gap, by_score = ranking(frame, "gap/train"), ranking(frame, "is@1k")
    assert list(by_gap["cell"]) == ["dense", "0->4", "2->8"] and by_gap["rank"].isna().all()
    assert list(by_score["cell"]) == ["0->4", "2->8", "dense"]
    assert by_score["rank"].tolist() == [1, 2, 3]
