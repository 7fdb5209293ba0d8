"""Maps show the true differences, and a box without one cannot be taken for a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tests.analysis.conftest import ENDINGS
from tests.synthetic import FD, PAPER_PLACEMENTS
from tread_lab.analysis.figures.placement_maps import (
    baseline_title,
    draw_legend,
    draw_route_grid,
    draw_route_spans,
)
from tread_lab.analysis.figures.placements import Placements, placements, published_placements
from tread_lab.analysis.figures.style import (
    BETTER_TO_WORSE,
    BLUE,
    LESS_TO_MORE,
    Axes,
    Figure,
    figure,
    ink_on,
)

ROWS = [*((0, end) for end in range(2, 11)), *((start, 8) for start in range(1, 8))]
Draw = Callable[[Placements, Axes], None]


def drawn(draw: Draw, places: Placements) -> tuple[Axes, dict[tuple[int, int], Rectangle]]:
    """The boxes by their routes; only a span is at another height than its start."""
    _, (ax,) = figure()
    draw(places, ax)
    boxes = [p for p in ax.patches if isinstance(p, Rectangle)]
    spans = draw is draw_route_spans
    routes = ROWS if spans else [(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in boxes]
    return ax, dict(zip(routes, boxes, strict=True))


@pytest.mark.parametrize("draw", [draw_route_grid, draw_route_spans])
def test_values_are_written_and_endings_hatched_and_lettered(
    draw: Draw, paper_frame: pd.DataFrame
) -> None:
    ax, boxes = drawn(draw, placements(paper_frame, "gap/heldout"))
    assert set(boxes) == set(PAPER_PLACEMENTS)
    hatches = {route: box.get_hatch() for route, box in boxes.items() if box.get_hatch()}
    assert set(hatches) == set(ENDINGS)
    assert len(set(hatches.values())) == 4  # no two endings look alike
    texts = dict(zip(boxes, (text.get_text() for text in ax.texts)))
    assert {route: texts[route] for route in ENDINGS} == {
        (0, 10): "D", (7, 8): "F", (1, 8): "S", (0, 3): "\u2026"
    }  # fmt: skip
    assert texts[2, 8] == "\N{MINUS SIGN}1.5" and texts[3, 8] == "+3.2"  # units of 10^-3
    blue, orange = (boxes[route].get_facecolor() for route in ((2, 8), (0, 8)))
    assert blue[2] > blue[0] and orange[0] > orange[2]
    outlined = [route for route, box in boxes.items() if box.get_linewidth() > 1]
    assert outlined == [(2, 8)]


def test_a_grid_has_all_starts_and_ends_and_names_the_baseline(paper_frame: pd.DataFrame) -> None:
    ax, boxes = drawn(draw_route_grid, placements(paper_frame, FD))
    assert list(ax.get_xticks()) == list(range(2, 11)) and list(ax.get_yticks()) == list(range(8))
    assert ax.get_xlim() == (1.5, 10.5) and ax.get_ylim() == (7.5, -0.5)
    assert (boxes[2, 8].get_width(), boxes[2, 8].get_height()) == (1, 1)
    assert baseline_title(paper_frame, FD).endswith(" = 1.8")
    assert baseline_title(paper_frame, "gap/heldout").startswith("dense baseline: held-out loss = ")
    unmeasured = paper_frame.assign(**{FD: np.nan})
    assert baseline_title(unmeasured, FD) == ""


def test_a_metric_without_a_better_is_purple_to_green_and_has_no_best(
    paper_frame: pd.DataFrame,
) -> None:
    places = placements(paper_frame, "gap/train")
    _, boxes = drawn(draw_route_grid, places)
    assert places.best is None and all(box.get_linewidth() < 1 for box in boxes.values())
    worst = max(zip(places.value[places.measured], np.array(places.routes)[places.measured]),
                key=lambda pair: pair[0])  # fmt: skip
    assert to_hex(boxes[tuple(worst[1])].get_facecolor()) == to_hex(LESS_TO_MORE(1.0))


def test_spans_cover_their_blocks_in_rows_and_the_line_stands_after_block_9() -> None:
    places = published_placements()
    ax, boxes = drawn(draw_route_spans, places)
    covered = [(box.get_x(), box.get_x() + box.get_width()) for box in boxes.values()]
    assert covered == [(i - 0.5, j + 0.5) for i, j in ROWS]
    assert [round(box.get_y() + 0.38, 6) for box in boxes.values()] == list(range(16))
    assert ax.get_xlim() == (-0.5, 11.5) and ax.yaxis_inverted()
    line: Any = ax.lines[0].get_xdata()
    assert line[0] == 9.5 and ax.get_xlabel() == "block; dashed: after block 9"
    assert to_hex(boxes[2, 8].get_facecolor()).upper() == BLUE  # the bluest is the best


def one_route(low: float, high: float, *, end: int = 8) -> Placements:
    numbers = (np.array([x]) for x in ((low + high) / 2, low, high))
    return Placements(
        "gap/heldout", np.array([2]), np.array([end]), *numbers, np.array(["completed"])
    )


@pytest.mark.parametrize("draw", [draw_route_grid, draw_route_spans])
def test_a_dot_inside_the_box_says_that_the_interval_holds_zero(draw: Draw) -> None:
    for low, high, dots in ((-1.0, 3.0, 1), (1.0, 3.0, 0)):
        _, (ax,) = figure()
        draw(one_route(low, high), ax)
        marks = [line for line in ax.lines if line.get_marker() == "."]
        assert len(marks) == dots
        box: Any = ax.patches[0]
        for mark in marks:
            x, y = mark.get_xdata()[0], mark.get_ydata()[0]  # type: ignore[index]
            assert box.get_x() < x < box.get_x() + box.get_width()
            assert box.get_y() < y < box.get_y() + box.get_height()


def test_the_value_of_one_block_stands_beside_its_span() -> None:
    for end, at in ((2, 2.6), (8, 5.0)):
        _, (ax,) = figure()
        draw_route_spans(one_route(1.0, 3.0, end=end), ax)
        assert ax.texts[0].get_position() == (pytest.approx(at), 0)


def test_the_legend_says_what_marks_mean(paper_frame: pd.DataFrame) -> None:
    fig = Figure()
    draw_legend(placements(paper_frame, "gap/heldout"), fig)
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    assert texts[0] == "best" and len(texts) == 5
    bare = Figure()
    draw_legend(placements(paper_frame.assign(state="completed"), "gap/train").take(
        np.array([], dtype=np.int64)), bare)  # fmt: skip
    assert bare.legends == []


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
