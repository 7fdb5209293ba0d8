"""Route placement as Fig. 8 draws it: a horizontal span over blocks i..j for every route."""

# R routes, one above the other

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.placements import Placements, best_route, published_placements
from tread_lab.analysis.tables import published
from tread_lab.records.metric_names import metric_kind
from tread_lab.specs.model import depth_of

MARGIN = 3  # Fig. 8: a route of 12 blocks should end at block 9 = B - 3 at the latest


def in_rows(places: Placements) -> Placements:
    """Return the routes in the order of the drawing: by start, then by end."""
    return places.take(np.lexsort((places.end, places.start)))


def draw_route_spans(places: Placements, ax: style.Axes, *, depth: int = 12) -> None:
    """Draw for each route a span over the blocks that it skips, coloured by its value.

    The best is outlined, a dot stands where the interval holds zero; a route without a number is
    hatched and lettered. The dashed line stands after the last block at which the paper lets a
    route end, in a network of `depth` blocks.
    """
    power, norm = style.power_of_ten(places.value), style.centred(places.value)
    colours = style.DIFFERENCES[metric_kind(places.metric).sign]
    texts = style.signed(places.value / 10.0**power)
    undecided = style.holds_zero(places.low, places.high)
    for row, (value, state, text) in enumerate(zip(places.value, places.states, texts)):
        if np.isfinite(value):
            fill = colours(norm(value))
            _span(ax, places, row, fill=fill)
            _letter(ax, places, row, text, color=style.ink_on(fill))
            if undecided[row]:
                style.mark_zero(ax, places.end[row] + 0.3, row, style.ink_on(fill))
        else:
            look = style.STATE_LOOKS[str(state)]
            _span(ax, places, row, fill="white", hatch=look.hatch)
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            _letter(ax, places, row, look.letter, color=style.BLACK, bbox=plate)
    _label_axes(ax, places, depth)
    style.colour_bar(
        ax, style.ScalarMappable(norm, colours), style.label(places.metric), power=power
    )


def draw_legend(places: Placements, fig: style.Figure) -> None:
    """Say below the figure what dots, hatches and letters mean, where there are any."""
    states = style.state_legend(dict.fromkeys(map(str, places.states)))
    handles = [*style.zero_legend(places.low, places.high), *states]
    if handles:
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _span(
    ax: style.Axes, places: Placements, row: int, *, fill: str | tuple[float, ...], hatch: str = ""
) -> None:
    """Draw the box of one route, from the left edge of block i to the right edge of block j."""
    start, end = places.routes[row]
    best = row == places.best
    edge, width = (style.BLACK, 1.3) if best else (style.GREY, 0.4)
    box = style.Rectangle(
        (start - 0.5, row - 0.38),
        end - start + 1,
        0.76,
        facecolor=fill,
        edgecolor=edge,
        linewidth=width,
        hatch=hatch or None,
        zorder=3 if best else 2,
    )
    ax.add_patch(box)


def _letter(ax: style.Axes, places: Placements, row: int, text: str, **look: Any) -> None:
    """Write in the middle of a span; to the right of one that is too short for its value."""
    start, end = places.routes[row]
    look = {"va": "center", "fontsize": 5.5, "zorder": 4, **look}
    if end > start:
        ax.text((start + end) / 2, row, text, ha="center", **look)
    else:
        ax.text(end + 0.6, row, text, ha="left", **{**look, "color": style.BLACK})


def _label_axes(ax: style.Axes, places: Placements, depth: int) -> None:
    """Write blocks below and routes to the left, the shortest start first."""
    latest_end = depth - MARGIN
    ax.axvline(latest_end + 0.5, color=style.BLACK, linewidth=0.8, linestyle="--", zorder=5)
    ax.set_xlim(-0.5, depth - 0.5)
    ax.set_ylim(len(places.routes) - 0.4, -0.6)
    ax.set_xticks(range(0, depth, 1 if depth <= 12 else 4))
    names = [f"{start}\N{RIGHTWARDS ARROW}{end}" for start, end in places.routes]
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel(f"block; dashed: after block {latest_end}")
    ax.tick_params(length=0)
    ax.grid(axis="x", color=style.GREY, alpha=0.2, linewidth=0.4)
    ax.spines[:].set_visible(False)


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric, places in records.placed():
        rows = max(len(places.routes), len(published.FIG8))
        fig, (ours, theirs) = style.figure(width=style.PAGE, height=0.9 + 0.135 * rows, columns=2)
        depth = depth_of(str(records.frame["model"].iloc[0]))
        draw_route_spans(in_rows(places), ours, depth=depth)
        ours.set_title(records.title())
        draw_route_spans(in_rows(published_placements()), theirs)
        theirs.set_title(published.FIG8_TITLE)
        draw_legend(places, fig)
        yield Drawn(named("route_spans", metric), best_route(places), fig, metric)


TITLE = "Placement as the paper draws it: the blocks of each route"
ROUTE_SPANS = FigureKind(TITLE, _drawn, each_panel=True, compares=True)
