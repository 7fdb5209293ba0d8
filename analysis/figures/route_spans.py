"""Route placement as Fig. 8 draws it: a horizontal span over blocks i..j for every route."""

# R routes, one above the other

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.placements import measured_as, placements
from tread_lab.analysis.figures.style import (
    BETTER_TO_WORSE,
    BLACK,
    GREY,
    MINUS,
    STATE_LOOKS,
    Axes,
    Figure,
    Rectangle,
    ScalarMappable,
    centred,
    ink_on,
    label,
    power_of_ten,
    signed,
    state_legend,
    times,
)
from tread_lab.analysis.tables import published
from tread_lab.frames import delta_column
from tread_lab.records.metric_names import lower_is_better
from tread_lab.specs.model import depth_of

MARGIN = 3  # Fig. 8: a route of 12 blocks should end at block 9 = B - 3 at the latest


@dataclass(frozen=True)
class RouteSpans:
    """Every placed route with its difference to the baseline, in the order of start and end.

    Attributes:
        metric: what the values are; a difference, so the baseline is 0.
        depth: B, the blocks of the network.
        routes: (i, j), both ends inclusive.
        values: [R]; NaN with a state where there is no number.
        states: [R]; `completed` where there is one.
        measured_as: what the values are taken over.
    """

    metric: str
    depth: int
    routes: tuple[tuple[int, int], ...]
    values: NDArray[np.float64]
    states: tuple[str, ...]
    measured_as: str = ""

    @property
    def latest_end(self) -> int:
        """The last block at which a route should end, by the paper: 9 of 12."""
        return self.depth - MARGIN

    @property
    def best(self) -> int | None:
        """The row with the best value."""
        sign = 1 if lower_is_better(self.metric.removeprefix("delta/")) else -1
        known = np.isfinite(self.values).any()
        return int(np.nanargmin(sign * self.values)) if known else None


def route_spans(frame: pd.DataFrame, metric: str = "gap/heldout") -> RouteSpans:
    """Return the spans of one metric from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, or several cells share a route (see `placements`).
    """
    places = placements(frame, metric).sort_values(["start", "end"])
    return RouteSpans(
        delta_column(metric),
        depth_of(str(frame["model"].iloc[0])),
        tuple(zip(places["start"].tolist(), places["end"].tolist())),
        places["value"].to_numpy(float),
        tuple(places["state"]),
        measured_as(places),
    )


def published_spans() -> RouteSpans:
    """Return the published values (see `published.FIG8`), FID of another model and data set."""
    routes = tuple(sorted(published.FIG8))
    values = np.array([published.FIG8[route] for route in routes])
    return RouteSpans("delta/FID", 12, routes, values, ("completed",) * len(routes))


def draw_route_spans(spans: RouteSpans, ax: Axes) -> None:
    """Draw for each route a span over the blocks that it skips, coloured by its value.

    The best is outlined; a route without a number is hatched and lettered. The dashed line stands
    after the last block at which the paper lets a route end.
    """
    power, norm = power_of_ten(spans.values), centred(spans.values)
    lower = lower_is_better(spans.metric.removeprefix("delta/"))
    colours = BETTER_TO_WORSE if lower else BETTER_TO_WORSE.reversed()
    texts = signed(spans.values / 10.0**power)
    for row, (value, state, text) in enumerate(zip(spans.values, spans.states, texts)):
        if np.isfinite(value):
            fill = colours(norm(value))
            _span(ax, spans, row, fill=fill)
            _letter(ax, spans, row, text, color=ink_on(fill))
        else:
            _span(ax, spans, row, fill="white", hatch=STATE_LOOKS[state].hatch)
            plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            _letter(ax, spans, row, STATE_LOOKS[state].letter, color=BLACK, bbox=plate)
    ax.axvline(spans.latest_end + 0.5, color=BLACK, linewidth=0.8, linestyle="--", zorder=5)
    _label_axes(ax, spans)
    bar = ax.figure.colorbar(ScalarMappable(norm, colours), ax=ax, pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_formatter(lambda v, _: f"{v / 10.0**power:g}".replace("-", MINUS))
    bar.set_label(label(spans.metric) + times(power))


def draw_states(spans: RouteSpans, fig: Figure) -> None:
    """Say below the figure what hatches and letters mean, where there are any."""
    handles = state_legend(dict.fromkeys(spans.states))
    if handles:
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _span(ax: Axes, spans: RouteSpans, row: int, *, fill: Any, hatch: str | None = None) -> None:
    """Draw the box of one route, from the left edge of block i to the right edge of block j."""
    start, end = spans.routes[row]
    best = row == spans.best
    edge, width = (BLACK, 1.3) if best else (GREY, 0.4)
    look = {"facecolor": fill, "edgecolor": edge, "linewidth": width, "hatch": hatch}
    corner = (start - 0.5, row - 0.38)
    ax.add_patch(Rectangle(corner, end - start + 1, 0.76, zorder=3 if best else 2, **look))


def _letter(ax: Axes, spans: RouteSpans, row: int, text: str, **look: Any) -> None:
    """Write in the middle of a span; to the right of one that is too short for its value."""
    start, end = spans.routes[row]
    look = {"va": "center", "fontsize": 5.5, "zorder": 4, **look}
    if end > start:
        ax.text((start + end) / 2, row, text, ha="center", **look)
    else:
        ax.text(end + 0.6, row, text, ha="left", **{**look, "color": BLACK})


def _label_axes(ax: Axes, spans: RouteSpans) -> None:
    """Blocks below, routes to the left, the shortest start first."""
    ax.set_xlim(-0.5, spans.depth - 0.5)
    ax.set_ylim(len(spans.routes) - 0.4, -0.6)
    ax.set_xticks(range(0, spans.depth, 1 if spans.depth <= 12 else 4))
    names = [f"{start}\N{RIGHTWARDS ARROW}{end}" for start, end in spans.routes]
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel(f"block; dashed: after block {spans.latest_end}")
    ax.tick_params(length=0)
    ax.grid(axis="x", color=GREY, alpha=0.2, linewidth=0.4)
    ax.spines[:].set_visible(False)
