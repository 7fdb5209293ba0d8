"""The bars carry the true differences with their intervals, in the paper's order."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.synthetic import PAPER_PLACEMENTS
from tread_lab.analysis.figures.placement_maps import draw_legend
from tread_lab.analysis.figures.placements import best_route
from tread_lab.analysis.figures.route_bars import (
    draw_route_bars,
    route_bars,
)
from tread_lab.analysis.figures.style import figure
from tread_lab.analysis.tables import published
from tread_lab.specs import UserError


def test_bars_stand_in_the_papers_order(paper_frame: pd.DataFrame) -> None:
    bars = route_bars(paper_frame)
    assert tuple(bars.routes) == PAPER_PLACEMENTS == tuple(published.FIG8)
    assert bars.measured_as == "95% over 32 images of 1 seed"


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


def test_where_every_route_is_worse_the_frame_is_of_the_least_harmful(
    paper_frame: pd.DataFrame,
) -> None:
    gaps = [f"gap/heldout{end}" for end in ("", ":low", ":high")]
    worse = route_bars(paper_frame.assign(**{gap: paper_frame[gap] + 1 for gap in gaps}))
    fig, (ax,) = figure()
    draw_route_bars(worse, ax)
    assert any(text.get_text().startswith("framed: least harmful") for text in ax.texts)
    draw_legend(worse, fig)
    assert fig.legends[0].get_texts()[0].get_text() == "least harmful"
    assert best_route(worse).startswith("Least harmful is 2→8: ")


def test_routes_without_a_number_have_hatched_stubs_at_their_places(
    paper_frame: pd.DataFrame,
) -> None:
    bars = route_bars(paper_frame)
    _, (ax,) = figure()
    draw_route_bars(bars, ax)
    stubs = [patch.get_x() for patch in ax.patches if patch.get_hatch()]
    places = [bar.get_x() for bar, measured in zip(ax.patches, bars.measured) if not measured]
    assert stubs == pytest.approx(places) and stubs
