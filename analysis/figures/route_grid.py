"""The placement heatmap: difference to the dense baseline for every start and end of a route."""

# S starts, E ends

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.placements import best_route, placements
from tread_lab.records.metric_names import GAP_HELDOUT, GAP_TRAIN, HELDOUT_LOSS, metric_kind

BASELINE_OF = {GAP_HELDOUT: HELDOUT_LOSS, GAP_TRAIN: HELDOUT_LOSS}


@dataclass(frozen=True)
class RouteGrid:
    """Differences to the baseline over (start, end), both ends inclusive.

    Attributes:
        metric: the column shown; a difference, so the baseline is 0.
        starts, ends: block numbers of rows and columns.
        values, low, high: [S, E]; NaN where there is no number.
        states: [S, E]; `completed` where there is one, `` where no such route was planned.
        baseline: the dense baseline's own value: of the metric, or of the loss for a loss gap.
        best: the route with the best value; `None` where no value of the metric is better.
    """

    metric: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    states: NDArray[np.str_]
    baseline: float
    best: tuple[int, int] | None


def route_grid(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> RouteGrid:
    """Return the grid of one metric from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, or several cells share a route (see `placements`).
    """
    places = placements(frame, metric)
    starts, ends = _range(places.start), _range(places.end)
    shape = (len(starts), len(ends))
    values, low, high = (np.full(shape, np.nan) for _ in range(3))
    states = np.full(shape, "", dtype="<U16")
    if places.routes:
        at = (places.start - starts[0], places.end - ends[0])
        values[at], low[at], high[at] = places.value, places.low, places.high
        states[at] = places.states
    best = None if places.best is None else places.routes[places.best]
    dense = frame.loc[frame["role"] == "baseline", BASELINE_OF.get(metric, metric)]
    baseline = float(dense.mean()) if dense.notna().any() else np.nan
    return RouteGrid(places.metric, starts, ends, values, low, high, states, baseline, best)


def _range(blocks: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(range(blocks.min(), blocks.max() + 1)) if len(blocks) else ()


def draw_route_grid(grid: RouteGrid, ax: style.Axes) -> None:
    """Draw values in cells; outline the best, put a dot where the interval holds zero.

    Cells without a number are hatched and lettered.
    """
    power = style.power_of_ten(grid.values)
    norm = style.centred(grid.values)
    colours = style.DIFFERENCES[metric_kind(grid.metric).sign]
    image = ax.imshow(grid.values, cmap=colours, norm=norm, aspect="auto")
    texts = np.reshape(style.signed(grid.values.ravel() / 10.0**power), grid.values.shape)
    undecided = style.holds_zero(grid.low, grid.high)
    for at, value in np.ndenumerate(grid.values):
        (row, column), state = at, str(grid.states[at])
        if np.isfinite(value):
            _cell(ax, row, column, edge="white", width=0.8)
            ink = style.ink_on(colours(norm(value)))
            ax.text(column, row, str(texts[at]), ha="center", va="center", color=ink, fontsize=5.5)
            if undecided[at]:
                style.mark_zero(ax, column + 0.36, row - 0.32, ink)
        elif state:
            _draw_state(ax, row, column, state)
    if grid.best is not None:
        best = grid.best[0] - grid.starts[0], grid.best[1] - grid.ends[0]
        _cell(ax, *best, edge=style.BLACK, width=1.3)
    _label_axes(ax, grid)
    style.colour_bar(ax, image, style.label(grid.metric), power=power)
    _draw_legend(ax, grid)


def _draw_legend(ax: style.Axes, grid: RouteGrid) -> None:
    best = [style.Patch(fc="none", ec=style.BLACK, lw=1.3, label="best")] if grid.best else []
    states = style.state_legend(dict.fromkeys(grid.states.flat))
    handles = [*best, *style.zero_legend(grid.low, grid.high), *states]
    if handles:
        columns = len(handles) if len(handles) <= 3 else 2
        ax.figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _label_axes(ax: style.Axes, grid: RouteGrid) -> None:
    ax.set_xticks(range(len(grid.ends)), [str(end) for end in grid.ends])
    ax.set_yticks(range(len(grid.starts)), [str(start) for start in grid.starts])
    ax.set_xlabel("last block skipped, $j$")
    ax.set_ylabel("first block skipped, $i$")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if np.isfinite(grid.baseline):
        name = style.label(BASELINE_OF.get(grid.metric, grid.metric.removeprefix("delta/")))
        ax.set_title(f"dense baseline: {name.replace(chr(10), '')} = {grid.baseline:.4g}")


def _draw_state(ax: style.Axes, row: int, column: int, state: str) -> None:
    look = style.STATE_LOOKS[state]
    _cell(ax, row, column, edge=style.GREY, width=0.5, hatch=look.hatch, inset=0.04)
    plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    ax.text(column, row, look.letter, ha="center", va="center", fontsize=6.5, bbox=plate)


def _cell(
    ax: style.Axes,
    row: int,
    column: int,
    *,
    edge: str,
    width: float,
    hatch: str | None = None,
    inset: float = 0.0,
) -> None:
    """Outline one cell."""
    corner, side = (column - 0.5 + inset, row - 0.5 + inset), 1 - 2 * inset
    box = style.Rectangle(
        corner, side, side, fill=False, edgecolor=edge, linewidth=width, hatch=hatch, clip_on=False
    )
    ax.add_patch(box)


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric, places in records.placed():
        grid = route_grid(records.frame, metric)
        if min(grid.values.shape) > 1:
            width = style.COLUMN if len(grid.ends) <= 10 else style.PAGE
            fig, (ax,) = style.figure(width=width, height=1.1 + 0.22 * len(grid.starts))
            draw_route_grid(grid, ax)
            yield Drawn(named("route_grid", metric), best_route(places), fig, metric)


ROUTE_GRID = FigureKind("Where a route starts and ends", _drawn, each_panel=True, compares=True)
