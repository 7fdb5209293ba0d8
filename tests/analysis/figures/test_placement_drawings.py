"""Maps and spans show the true differences, and what has none cannot be taken for a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tread_lab.analysis.figures.placements import (
    best_route,
    draw_route_grid,
    draw_route_spans,
    placements,
)
from tread_lab.analysis.figures.points import Points, bare_rows
from tread_lab.analysis.figures.style import (
    BETTER_TO_WORSE,
    LESS_TO_MORE,
    Axes,
    figure,
    ink_on,
)

Draw = Callable[[Points, Axes], None]


def test_a_metric_without_a_better_is_purple_to_green_and_has_no_best(
    paper_frame: pd.DataFrame,
) -> None:
    places = placements(paper_frame, "gap/train")
    _, (ax,) = figure()
    draw_route_grid(places, ax)
    assert places.best is None and all(box.get_linewidth() < 1 for box in ax.patches)
    worst: Any = ax.patches[int(np.nanargmax(places.rows["value"]))]
    assert to_hex(worst.get_facecolor()) == to_hex(LESS_TO_MORE(1.0))
    assert "no measure of quality: no route is best by it" in best_route(places)


@pytest.mark.parametrize("draw", [draw_route_grid, draw_route_spans])
def test_a_dot_inside_the_box_says_that_the_interval_holds_zero(draw: Draw) -> None:
    for low, high, dots in ((-1.0, 3.0, 1), (1.0, 3.0, 0)):
        _, (ax,) = figure()
        row = bare_rows(start=[2], end=8, value=(low + high) / 2, low=low, high=high)
        draw(Points("gap/heldout", row), ax)
        marks = [line for line in ax.lines if line.get_marker() == "."]
        assert len(marks) == dots
        box: Any = ax.patches[0]
        for mark in marks:
            x, y = mark.get_xdata()[0], mark.get_ydata()[0]  # type: ignore[index]
            assert box.get_x() < x < box.get_x() + box.get_width()
            assert box.get_y() < y < box.get_y() + box.get_height()


def test_letters_on_every_colour_have_a_contrast_of_4_5() -> None:
    for colours in (BETTER_TO_WORSE, LESS_TO_MORE):
        for share in np.linspace(0, 1, 41):
            red, green, blue = (
                v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
                for v in colours(share)[:3]
            )
            light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
            white = ink_on(colours(share)) == "white"
            assert (1.05 / (light + 0.05) if white else (light + 0.05) / 0.05) >= 4.5
