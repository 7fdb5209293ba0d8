"""Numbers under the figures of rates, budgets, time to equal quality, Pareto fronts and samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.four_sweeps import ENDINGS
from tests.synthetic import (
    FD,
    fd_gap,
    heldout_gap,
    late_gap,
    sample_images,
    small,
    train_gap,
    write_sweep,
)
from tread_lab.analysis.figures.curves import (
    Curve,
    Curves,
    best_rate,
    published_rates,
    rates,
    rates_caption,
)
from tread_lab.analysis.figures.loss_gap import gap_and_quality
from tread_lab.analysis.figures.over_training import budget_metrics, over_training
from tread_lab.analysis.figures.placements import placements
from tread_lab.analysis.figures.samples import sample_rows, sheet
from tread_lab.analysis.figures.style import figure
from tread_lab.analysis.figures.time_to_equal import (
    cost_to_reach,
    draw_time_to_equal,
    published_time_to_equal,
    time_to_equal,
)
from tread_lab.analysis.report.answer import answer
from tread_lab.analysis.tables import published
from tread_lab.frames import steps_frame, trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import TRAIN_FLOPS
from tread_lab.records.status import RunState


def test_rates_start_at_the_baseline_and_have_the_true_gaps(seeds_frame: pd.DataFrame) -> None:
    found = rates(seeds_frame)
    assert [curve.name for curve in found.curves] == ["0->4", "0->8", "2->8", "4->8"]
    for curve in found.curves:
        start, end = map(int, curve.name.split("->"))
        assert list(curve.x) == [0, 0.5, 0.75] and curve.value[0] == 0
        if curve.name != "4->8":  # one of its seeds failed
            assert curve.value[1:] == pytest.approx(heldout_gap((start, end)))
            assert (curve.low[1:] < curve.value[1:]).all()
    failed = next(curve for curve in found.curves if curve.name == "4->8")
    assert np.isnan(failed.value[1:]).all() and set(failed.states[1:]) == {"failed"}
    best = best_rate(found)
    assert best is not None and (best[0].name, best[0].x[best[1]]) == ("2->8", 0.5)
    assert found.measured_as == "95% over 3 seeds"


def test_published_rates_are_table_5() -> None:
    (curve,) = published_rates().curves
    assert list(curve.value) == pytest.approx([0, -16.97, -22.13, 5.82])


def test_quality_over_training_without_and_with_guidance(budget_frame: pd.DataFrame) -> None:
    assert budget_metrics(budget_frame) == ["heldout/loss", FD]
    one_each = budget_frame.drop_duplicates("route")  # as matching gives every cell its length
    assert one_each["train.steps"].nunique() == 1
    one_each = one_each.assign(**{"train.steps": range(len(one_each))})
    assert budget_metrics(one_each) == []
    panels = over_training(budget_frame, FD).panels
    assert [title for title, _ in panels] == ["with guidance, $w$ = 2", "without guidance"]
    for (_, panel), base in zip(panels, (1.8, 4.4)):
        dense, *routed = panel.curves
        assert dense.dense and list(dense.x) == [100, 200, 400]
        truth = [base + 0.1 + late_gap(steps) for steps in (100, 200, 400)]  # two seeds, .2 apart
        assert dense.value == pytest.approx(truth)
        best = next(curve for curve in routed if curve.name == "2->8 s=0.5")
        assert best.value - dense.value == pytest.approx(fd_gap((2, 8)))
        lost = next(curve for curve in routed if curve.name == "0->4 s=0.5")
        assert np.isnan(lost.value).all() and set(lost.states) == {"failed"}


def test_a_cell_has_a_curve_over_stages_only_if_all_its_seeds_completed(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(100,), seeds=(0, 1), states={((2, 8), 1): "failed"}))
    ((_, found),) = over_training(steps_frame(lab, "placement"), FD).panels
    states = {curve.name: curve.states for curve in found.curves}
    lost = states.pop("2->8 s=0.5")
    assert lost == ("failed", "failed") and set(states.values()) == {("completed",) * 2}
    numbers = [np.isfinite(curve.value).all() for curve in found.curves]
    assert numbers == [True, True, False, True]


def test_time_to_equal_is_a_ratio_of_costs_at_equal_quality(budget_frame: pd.DataFrame) -> None:
    metric = over_training(budget_frame, FD).panels[0][1].metric
    found = time_to_equal(budget_frame, metric, cost=TRAIN_FLOPS)
    dense = next(curve for curve in found.curves if curve.dense)
    (factor,) = [f for f in found.factors if f.name == "2->8 s=0.5"]
    assert factor.level == pytest.approx(max(dense.value.min(), dense.value.min() + fd_gap((2, 8))))
    assert factor.value == pytest.approx(factor.dense_cost / factor.cost)
    assert factor.dense_cost == pytest.approx(cost_to_reach(dense.cost, dense.value, factor.level))


def test_the_cost_to_reach_a_value_is_read_between_points_by_its_logarithm() -> None:
    cost, value = np.array([1.0, 100.0]), np.array([3.0, 1.0])
    assert cost_to_reach(cost, value, 2.0) == pytest.approx(10)
    assert cost_to_reach(cost, value, 3.5) == 1 and np.isnan(cost_to_reach(cost, value, 0.5))
    assert cost_to_reach(cost, -value, -2.0, lower=False) == pytest.approx(10)


def test_published_factors_are_the_printed_ones() -> None:
    found = published_time_to_equal()
    assert [round(f.value) for f in found.factors] == [14, 37]
    printed = set(published.speed_ups()["factor"])
    assert {"14", "37"} <= printed
    _, (ax,) = figure(width=3.4)
    draw_time_to_equal(found, ax)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    levels = [ax.transData.transform((1e3, factor.level))[1] for factor in found.factors]
    assert not any(box.y0 < level < box.y1 for box in boxes for level in levels)
    curves = [line.get_transform().transform_path(line.get_path()) for line in ax.lines]
    assert not any(curve.intersects_bbox(box, filled=False) for curve in curves for box in boxes)


def test_gap_and_quality_pair_the_same_routes(paper_frame: pd.DataFrame) -> None:
    gaps, quality = gap_and_quality(paper_frame, FD)
    assert len(gaps.routes) == 16 - len(ENDINGS) and gaps.routes == quality.routes
    for route, gap, value in zip(gaps.routes, gaps.value, quality.value):
        assert gap == pytest.approx(train_gap(route)) and value == pytest.approx(fd_gap(route))


def test_samples_share_columns_and_keep_an_ending_of_every_kind(
    paper_lab: Lab, paper_frame: pd.DataFrame
) -> None:
    rows = sample_rows(paper_lab, paper_frame)
    assert rows is not None and rows.rows[0].name == "dense"
    assert {row.state for row in rows.rows if row.images is None} == set(ENDINGS.values())
    for row in rows.rows:
        if row.images is not None and row.name != "dense":
            i, j = map(int, row.name.removesuffix(" s=0.5").split("->"))
            assert np.array_equal(row.images, sample_images((i, j))[:12])
    assert sheet(rows).shape == (8 * 7, 12 * 7, 1)  # eight rows at most
    done = paper_frame["state"] == "completed"
    six = paper_frame["cell"].isin(paper_frame[done]["cell"].unique()[:6])
    few = sample_rows(paper_lab, paper_frame[six | ~done])
    assert few is not None and len(few.rows) == 8


def test_cells_beside_a_diverged_baseline_are_not_called_unmeasured(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    dense = lab.sweep("placement").plan().trials[0].run
    lab.run(dense).finish(RunState.DIVERGED, step=200, reason="on purpose")
    frame = trials_frame(lab, "placement")
    why = "its baseline diverged: there is nothing to compare with"
    assert frame["reason"].tolist() == ["on purpose", why, why, why]
    assert placements(frame, FD).states.tolist() == ["uncompared"] * 3


def test_the_answer_says_that_the_baseline_has_no_result(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    plan = lab.sweep("placement").plan()
    lab.run(plan.trials[0].run).finish(RunState.DIVERGED, step=200, reason="on purpose")
    found = answer(lab, trials_frame(lab, "placement"), plan)
    assert found.sentence == "There is nothing to compare with."
    assert found.certainty == (
        "3 trials completed, but the baseline diverged: there is nothing to compare with."
    )


def three_rates(metric: str) -> Curves:
    """One route at three rates: -1 at 0.25, +2 at 0.5."""
    rate, value, none = np.array([0, 0.25, 0.5]), np.array([0, -1.0, 2.0]), np.full(3, np.nan)
    states = ("completed",) * 3
    return Curves(metric, (Curve("2->8", False, rate, none, value, none, none, states),), "")


@pytest.mark.parametrize(("metric", "best"), [("delta/fid@10k", 1), ("delta/is@10k", 2)])
def test_less_or_more_is_better(metric: str, best: int) -> None:
    found = best_rate(three_rates(metric))
    assert found is not None and found[1] == best
    assert rates_caption(three_rates(metric)).startswith(f"Best is s = {0.25 * best:g} on 2→8:")


def test_no_rate_is_best_by_what_is_no_quality() -> None:
    assert best_rate(three_rates("gap/train")) is None


def test_rates_without_a_number_are_not_called_worse_than_dense() -> None:
    (curve,) = three_rates("gap/heldout").curves
    unknown = replace(curve, value=np.where(curve.x > 0, np.nan, 0.0))
    assert rates_caption(Curves("gap/heldout", (unknown,), "")) == "No rate has a number yet."
