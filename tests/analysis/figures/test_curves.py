"""Numbers under the figures of rates, budgets, time to equal quality, Pareto fronts and samples."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic import (
    FD,
    small,
    write_sweep,
)
from tread_lab.analysis import paper_tables
from tread_lab.analysis.figures.curves import (
    Curves,
    best_rate,
    cost_to_reach,
    draw_time_to_equal,
    over_training,
    published_time_to_equal,
    rates_caption,
)
from tread_lab.analysis.figures.placements import placements
from tread_lab.analysis.figures.points import bare_rows
from tread_lab.analysis.figures.samples import sample_rows
from tread_lab.analysis.figures.style import figure
from tread_lab.records.durable import write_json
from tread_lab.records.run_state import RunState
from tread_lab.results import steps_frame, trials_frame
from tread_lab.results.answer import answer


def test_a_cell_has_a_curve_over_stages_only_if_all_its_seeds_completed(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(100,), seeds=(0, 1), states={((2, 8), 1): "failed"}))
    found = over_training(steps_frame(lab, "placement"), FD)["training steps"]
    states = {name: rows["state"].tolist() for name, rows in found.curves.items()}
    assert states.pop("2->8 s=0.5") == ["failed"] * 2
    assert [*states.values()] == [["completed"] * 2] * 3
    lost = found.rows[found.rows["value"].isna()]
    assert lost["curve"].tolist() == ["2->8 s=0.5"] * 2


def test_the_cost_to_reach_a_value_is_read_between_points_by_its_logarithm() -> None:
    curve = bare_rows(x=[1.0, 100.0], value=[3.0, 1.0])
    assert cost_to_reach(curve, 2.0) == pytest.approx(10)
    assert np.isnan(cost_to_reach(curve, 3.5)) and np.isnan(cost_to_reach(curve, 0.5))
    assert cost_to_reach(curve[::-1], 2.0) == pytest.approx(10)


def test_published_factors_are_the_printed_ones() -> None:
    found = published_time_to_equal()
    assert [round(f.value) for f in found.factors] == [14, 37]
    printed = set(paper_tables.speed_ups()["factor"])
    assert {"14", "37"} <= printed
    _, (ax,) = figure(width=3.4)
    draw_time_to_equal(found, ax)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    levels = [ax.transData.transform((1e3, factor.level))[1] for factor in found.factors]
    assert not any(box.y0 < level < box.y1 for box in boxes for level in levels)
    curves = [line.get_transform().transform_path(line.get_path()) for line in ax.lines]
    assert not any(curve.intersects_bbox(box, filled=False) for curve in curves for box in boxes)


def test_samples_of_a_stopped_run_are_not_shown_as_those_of_a_trained_one(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(pictures=True))
    frame = trials_frame(lab, "placement")
    run = lab.run(frame["run"].iloc[-1])
    run.reopen()
    run.finish(RunState.STOPPED, step=200)
    rows = sample_rows(lab, trials_frame(lab, "placement"))
    assert rows is not None
    assert [row.state for row in rows.rows if row.images is None] == ["stopped"]
    for other in frame["run"].iloc[1:-1]:  # now one completed run has them, and by another sampler
        shutil.rmtree(lab.run(other).path / "evaluations")
    dense = lab.run(frame["run"].iloc[0])
    for folder in [*dense.end_evaluations()]:
        if (tree := folder.read()) is not None and tree["spec"]["kind"] == "samples":
            record = folder.path / "metrics.json"
            write_json(record, {**tree, "spec": {**tree["spec"], "count": 2000}})
            folder.path.rename(folder.path.with_name("0" * 16))
    rows = sample_rows(lab, trials_frame(lab, "placement"))
    assert rows is not None and rows.rows[0].images is not None


def test_what_stands_beside_a_diverged_baseline_is_not_called_unmeasured(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    plan = lab.sweep("placement").plan()
    lab.run(plan.trials[0].run).finish(RunState.DIVERGED, step=200, reason="on purpose")
    frame = trials_frame(lab, "placement")
    why = "its baseline diverged: there is nothing to compare with"
    assert frame["reason"].tolist() == ["on purpose", why, why, why]
    assert placements(frame, FD).rows["state"].tolist() == ["uncompared"] * 3
    found = answer(lab, frame)
    assert found.sentence == "There is nothing to compare with."
    assert found.certainty == (
        "3 trials completed, but the baseline diverged: there is nothing to compare with."
    )


def three_rates(metric: str) -> Curves:
    """One route at three rates: -1 at 0.25, +2 at 0.5."""
    return Curves(metric, bare_rows(curve="2->8", x=[0, 0.25, 0.5], value=[0, -1.0, 2.0]))


@pytest.mark.parametrize(("metric", "best"), [("delta/fid@10k", 1), ("delta/is@10k", 2)])
def test_less_or_more_is_better(metric: str, best: int) -> None:
    found = best_rate(three_rates(metric))
    assert found is not None and found["x"] == 0.25 * best
    assert rates_caption(three_rates(metric)).startswith(f"Best is s = {0.25 * best:g} on 2→8:")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.0], "No rate has a better mean than dense training (\u0394 held-out loss)."),
        ([np.nan, np.nan], "No rate has a number yet."),
    ],
)
def test_rates_that_cost_quality_and_those_without_a_number_are_not_best(
    values: list[float], said: str
) -> None:
    own = three_rates("gap/heldout")
    own.rows["value"] = [0.0, *values]
    assert rates_caption(own) == said
    assert best_rate(three_rates("gap/train")) is None  # which is no quality
