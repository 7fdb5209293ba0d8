"""The bars carry the true differences with their intervals, in the paper's order."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.synthetic import PAPER_PLACEMENTS
from tread_lab.analysis.figures.placements import best_route
from tread_lab.analysis.figures.route_bars import (
    draw_route_bars,
    published_bars,
    route_bars,
)
from tread_lab.analysis.figures.style import BLUE, ORANGE, figure
from tread_lab.analysis.tables import published
from tread_lab.specs import UserError


def test_bars_stand_in_the_papers_order(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    assert (bars.start, bars.end) == (0, 8)
    assert tuple(bars.places.routes) == PAPER_PLACEMENTS == tuple(published.FIG8)
    assert bars.places.measured_as == "95% over images, 1 seed"


def test_a_route_of_both_families_stands_in_the_first(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    assert (0, 8) in bars.places.routes[: bars.split]
    assert len(bars.places.routes) - bars.split == 7  # 0->8 is not among the other starts


def test_drawn_heights_are_the_values_and_endings_are_hatched(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    _, (ax,) = figure()
    draw_route_bars(bars, ax)
    heights = [patch.get_height() * 1e-3 for patch in ax.patches[: len(bars.places.routes)]]
    assert heights == pytest.approx(bars.places.value, nan_ok=True)
    hatches = [patch.get_hatch() for patch in ax.patches if patch.get_hatch()]
    assert len(hatches) == len(set(hatches)) == 4
    assert {"D", "F", "S", "\u2026"} <= {text.get_text() for text in ax.texts}
    assert list(ax.lines[0].get_ydata()) == [0, 0]  # the baseline
    ticks = [tick.get_text() for tick in ax.get_xticklabels()]
    assert ticks == [*map(str, range(2, 11)), *map(str, range(7, 0, -1))]


def test_better_is_blue_and_worse_is_orange() -> None:
    _, (ax,) = figure()
    draw_route_bars(published_bars(), ax)
    colours = [to_hex(patch.get_facecolor()).upper() for patch in ax.patches]
    assert colours == [BLUE if value < 0 else ORANGE for value in published.FIG8.values()]


def test_a_sweep_without_single_routes_is_refused(paper_frame: pd.DataFrame) -> None:
    with pytest.raises(UserError, match="places no single route"):
        route_bars(paper_frame[paper_frame["role"] == "baseline"])


def test_no_bar_is_best_or_blue_by_a_metric_without_a_better(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame, "gap/train")
    assert bars.places.best is None
    _, (ax,) = figure()
    draw_route_bars(bars, ax)
    colours = {to_hex(patch.get_facecolor()) for patch in ax.patches[: len(bars.places.routes)]}
    assert colours == {"#8c8c8c"}
    told = "no measure of quality: no route is best by it"
    assert told in best_route(bars.places)


def test_the_frame_of_the_best_bar_is_explained(paper_frame: pd.DataFrame) -> None:
    _, (ax,) = figure()
    draw_route_bars(route_bars(paper_frame), ax)
    assert any(text.get_text().startswith("framed: best") for text in ax.texts)
