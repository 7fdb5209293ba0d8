"""The bars carry the true differences with their intervals, in the paper's order."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.synthetic import PAPER_PLACEMENTS
from tread_lab.analysis.figures.placements import best_route, published_placements
from tread_lab.analysis.figures.route_bars import (
    draw_route_bars,
    in_families,
    route_bars,
)
from tread_lab.analysis.figures.style import BLUE, ORANGE, figure
from tread_lab.analysis.tables import published
from tread_lab.specs import UserError


def test_bars_stand_in_the_papers_order(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    assert tuple(bars.routes) == PAPER_PLACEMENTS == tuple(published.FIG8)
    assert bars.measured_as == "95% over images, 1 seed"


def test_drawn_heights_are_the_values_and_endings_are_hatched(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    _, (ax,) = figure()
    draw_route_bars(bars, ax)
    heights = [patch.get_height() * 1e-3 for patch in ax.patches[: len(bars.routes)]]
    assert heights == pytest.approx(bars.value, nan_ok=True)
    hatches = [patch.get_hatch() for patch in ax.patches if patch.get_hatch()]
    assert len(hatches) == len(set(hatches)) == 4
    assert {"D", "F", "S", "\u2026"} <= {text.get_text() for text in ax.texts}
    assert list(ax.lines[0].get_ydata()) == [0, 0]  # the baseline
    gap = ax.patches[9].get_x() - ax.patches[8].get_x()
    assert gap == pytest.approx(2)  # between 0->10 and 7->8; 0->8 is in the first family
    ticks = [tick.get_text() for tick in ax.get_xticklabels()]
    assert ticks == [*map(str, range(2, 11)), *map(str, range(7, 0, -1))]


def test_better_is_blue_and_worse_is_orange() -> None:
    _, (ax,) = figure()
    draw_route_bars(in_families(published_placements()), ax)
    colours = [to_hex(patch.get_facecolor()).upper() for patch in ax.patches]
    assert colours == [BLUE if value < 0 else ORANGE for value in published.FIG8.values()]


def test_a_sweep_without_single_routes_is_refused(paper_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="places no single route"):
        route_bars(paper_frame[paper_frame["role"] == "baseline"])


def test_no_bar_is_best_or_blue_by_a_metric_without_a_better(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame, "gap/train")
    assert bars.best is None
    _, (ax,) = figure()
    draw_route_bars(bars, ax)
    colours = {to_hex(patch.get_facecolor()) for patch in ax.patches[: len(bars.routes)]}
    assert colours == {"#8c8c8c"}
    told = "no measure of quality: no route is best by it"
    assert told in best_route(bars)


def test_the_frame_of_the_best_bar_is_explained(paper_frame: pd.DataFrame) -> None:
    _, (ax,) = figure()
    draw_route_bars(route_bars(paper_frame), ax)
    assert any(text.get_text().startswith("framed: best") for text in ax.texts)
