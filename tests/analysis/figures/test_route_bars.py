"""The bars carry the true differences with their intervals, in the paper's order."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.analysis.conftest import ENDINGS
from tests.synthetic import PAPER_PLACEMENTS, heldout_gap
from tread_lab.analysis.figures.placements import Placements, best_route
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


def test_bars_are_the_true_gaps_and_states(paper_frame: pd.DataFrame) -> None:
    places = route_bars(paper_frame).places
    for k, route in enumerate(places.routes):
        if route in ENDINGS:
            assert places.states[k] == ENDINGS[route] and np.isnan(places.value[k])
        else:
            assert places.value[k] == pytest.approx(heldout_gap(route))
            assert places.low[k] < places.value[k] < places.high[k]


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
    ticks = [tick.get_text() for tick in ax.get_xticklabels()]
    assert ticks == [*map(str, range(2, 11)), *map(str, range(7, 0, -1))]


def test_better_is_blue_and_worse_is_orange() -> None:
    _, (ax,) = figure()
    draw_route_bars(published_bars(), ax)
    from matplotlib.colors import to_hex

    colours = [to_hex(patch.get_facecolor()).upper() for patch in ax.patches]
    assert colours == [BLUE if value < 0 else ORANGE for value in published.FIG8.values()]


def test_published_bars_are_the_published_numbers() -> None:
    bars = published_bars()
    assert dict(zip(bars.places.routes, bars.places.value)) == published.FIG8
    assert bars.places.best is not None and bars.places.routes[bars.places.best] == (2, 8)


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


def test_a_reading_says_which_routes_cannot_be_distinguished() -> None:
    value, low, high = np.array([[-0.2, 0.1, 0.2], [-0.3, -0.1, 0.1], [-0.1, 0.3, 0.3]])
    start, end = np.array([[0, 0, 0], [2, 3, 4]])
    states = np.full(3, "completed")
    caption = best_route(Placements("gap/heldout", start, end, value, low, high, states))
    assert caption.endswith(
        "Compared with dense at 95%, of 3 routes: 1 better, 1 worse, 1 cannot be distinguished"
        " from it."
    )
