"""Numbers under the figures of rates, budgets, time to equal quality, Pareto fronts and samples."""

from __future__ import annotations

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
from tread_lab.analysis.figures.points import bare_rows
from tread_lab.analysis.figures.style import figure
from tread_lab.results import steps_frame


def test_curve_needs_all_seeds(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small(stages=(100,), seeds=(0, 1), states={((2, 8), 1): "failed"}))
    found = over_training(steps_frame(lab, "placement"), FD)["training steps"]
    states = {name: rows["state"].tolist() for name, rows in found.curves.items()}
    assert states.pop("2->8 s=0.5") == ["failed"] * 2
    assert [*states.values()] == [["completed"] * 2] * 3
    lost = found.rows[found.rows["value"].isna()]
    assert lost["curve"].tolist() == ["2->8 s=0.5"] * 2


def test_cost_to_reach_interpolates_logarithms() -> None:
    curve = bare_rows(x=[1.0, 100.0], value=[3.0, 1.0])
    assert cost_to_reach(curve, 2.0) == pytest.approx(10)
    assert np.isnan(cost_to_reach(curve, 3.5)) and np.isnan(cost_to_reach(curve, 0.5))
    assert cost_to_reach(curve[::-1], 2.0) == pytest.approx(10)


def test_published_factors_equal_the_printed() -> None:
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


def three_rates(metric: str) -> Curves:
    """One route at three rates: -1 at 0.25, +2 at 0.5."""
    return Curves(metric, bare_rows(curve="2->8", x=[0, 0.25, 0.5], value=[0, -1.0, 2.0]))


@pytest.mark.parametrize(("metric", "best"), [("delta/fid@10k", 1), ("delta/is@10k", 2)])
def test_less_or_more_is_better(metric: str, best: int) -> None:
    found = best_rate(three_rates(metric))
    assert found is not None and found["x"] == 0.25 * best
    assert rates_caption(three_rates(metric)).startswith(f"Best is s = {0.25 * best:g} on 2→8:")
