"""The spans lie over the blocks of their routes, coloured by the true differences."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from tests.analysis.conftest import ENDINGS
from tests.synthetic import heldout_gap
from tread_lab.analysis.figures.placements import placements, published_placements
from tread_lab.analysis.figures.route_spans import draw_legend, draw_route_spans, in_rows
from tread_lab.analysis.figures.style import BLUE, figure

PUBLISHED = [
    *((0, end) for end in range(2, 11)),
    *((start, 8) for start in range(1, 8)),
]


def boxes(ax) -> list[tuple[float, float, float]]:  # type: ignore[no-untyped-def]
    """(left, right, row) of every span that is drawn, from the upper to the lower."""
    spans = [(p.get_x(), p.get_x() + p.get_width(), p.get_y() + 0.38) for p in ax.patches]
    return [tuple(round(number, 6) for number in span) for span in spans]  # type: ignore[misc]


def test_spans_are_the_true_gaps_and_states(paper_frame: pd.DataFrame) -> None:
    spans = in_rows(placements(paper_frame, "gap/heldout"))
    assert spans.routes == PUBLISHED
    for route, value, state in zip(spans.routes, spans.value, spans.states):
        if route in ENDINGS:
            assert state == ENDINGS[route] and np.isnan(value)
        else:
            assert value == pytest.approx(heldout_gap(route))


def test_published_spans_are_fig_8() -> None:
    spans = in_rows(published_placements())
    assert spans.routes == PUBLISHED
    assert spans.value[spans.routes.index((2, 8))] == -21.87
    assert spans.value[spans.routes.index((0, 10))] == 7.47
    assert spans.best is not None and spans.routes[spans.best] == (2, 8)


def test_a_span_covers_its_blocks_both_ends_inclusive() -> None:
    _, (ax,) = figure()
    draw_route_spans(in_rows(published_placements()), ax)
    drawn = boxes(ax)
    assert drawn == [(i - 0.5, j + 0.5, row) for row, (i, j) in enumerate(PUBLISHED)]
    assert ax.get_xlim() == (-0.5, 11.5) and ax.yaxis_inverted()


def test_the_line_stands_after_block_9_of_12() -> None:
    spans = in_rows(published_placements())
    _, (ax,) = figure()
    draw_route_spans(spans, ax)
    assert [line.get_xdata()[0] for line in ax.lines] == [9.5]  # type: ignore[index]
    assert ax.get_xlabel() == "block; dashed: after block 9"


def test_the_best_is_the_bluest_and_outlined() -> None:
    _, (ax,) = figure()
    draw_route_spans(in_rows(published_placements()), ax)
    outlined = [k for k, patch in enumerate(ax.patches) if patch.get_linewidth() > 1]
    assert [PUBLISHED[k] for k in outlined] == [(2, 8)]
    assert to_hex(ax.patches[outlined[0]].get_facecolor()).upper() == BLUE


def test_endings_are_hatched_lettered_and_said_below(paper_frame: pd.DataFrame) -> None:
    spans = in_rows(placements(paper_frame, "gap/heldout"))
    fig, (ax,) = figure()
    draw_route_spans(spans, ax)
    draw_legend(spans, fig)
    hatched = [PUBLISHED[k] for k, patch in enumerate(ax.patches) if patch.get_hatch()]
    assert set(hatched) == set(ENDINGS)
    assert {"D", "F", "S", "\u2026"} <= {text.get_text() for text in ax.texts}
    assert len(fig.legends[0].get_texts()) == 4
