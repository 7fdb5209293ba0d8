"""Quality against executed training FLOPs, and the Pareto front: no cell is cheaper and better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, quality_metrics
from tread_lab.analysis.figures.placements import Array, endings_of, measured_as
from tread_lab.analysis.figures.point_names import write_names
from tread_lab.analysis.figures.sentences import listed, quantity, routed
from tread_lab.frames import HIGH, LOW, cells_frame, require_metric
from tread_lab.records.metric_names import GAP_HELDOUT, TRAIN_FLOPS, metric_kind
from tread_lab.specs.errors import UserError


@dataclass(frozen=True)
class Pareto:
    """One point per cell.

    Attributes:
        metric: the quality; for a gap the baseline is 0.
        cells: (role, cell) of each, as `cells_frame` has them.
        cost: training FLOPs, routes counted; over the baseline's where there is one baseline.
        relative: whether `cost` is over the baseline's.
        value, low, high: quality and its interval.
        front: [points], those that no other point beats, see `pareto_front`.
        endings: state -> names of the cells without a number.
        measured_as: what the intervals are over.
    """

    metric: str
    cells: tuple[tuple[str, str], ...]
    cost: Array
    relative: bool
    value: Array
    low: Array
    high: Array
    front: NDArray[np.bool_]
    endings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    measured_as: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The cells' names."""
        return tuple(cell for _, cell in self.cells)

    @property
    def dense(self) -> NDArray[np.bool_]:
        """[points], which are baselines."""
        return np.array([role == "baseline" for role, _ in self.cells], dtype=bool)


def pareto(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Pareto:
    """Return every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, it is no measure of quality, or no run has recorded its cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"{metric} is no measure of quality, so it has no Pareto front")
    require_metric(frame, TRAIN_FLOPS)
    cells = cells_frame(frame)
    dense = cells["role"] == "baseline"
    if metric_kind(metric).compared == "gap":
        cells[metric] = cells[metric].mask(dense & cells[metric].isna(), 0.0)
    done = (cells["state"] == "completed") & cells[metric].notna() & cells[TRAIN_FLOPS].notna()
    endings = endings_of(cells[~done], "cell")
    cells, dense = cells[done], dense[done]
    relative = int(dense.sum()) == 1
    cost, value, low, high = (
        cells[column].to_numpy(float)
        for column in (TRAIN_FLOPS, metric, metric + LOW, metric + HIGH)
    )
    cost = cost / cost[dense] if relative else cost
    return Pareto(
        metric=metric,
        cells=tuple(zip(cells["role"], cells["cell"])),
        cost=cost,
        relative=relative,
        value=value,
        low=low,
        high=high,
        front=pareto_front(cost, value, lower=metric_kind(metric).sign > 0),
        endings=endings,
        measured_as=measured_as(cells[~dense], metric),
    )


def pareto_front(cost: Array, value: Array, *, lower: bool = True) -> NDArray[np.bool_]:
    """Return which points no other beats: none costs as little and is as good, or better in one."""
    front = np.zeros(len(cost), dtype=bool)
    signed = value if lower else -value
    best = np.inf
    for level in np.unique(cost):
        at = np.flatnonzero(cost == level)
        least = signed[at].min()
        if least < best:
            front[at[signed[at] == least]] = True
            best = least
    return front


def draw_pareto(points: Pareto, ax: style.Axes) -> None:
    """Draw points with intervals, the front joined by steps and named; dense runs are diamonds.

    Of a front without room for all its names the best have theirs.
    """
    power, value, spread = style.scaled(points.value, points.low, points.high)
    is_gap = metric_kind(points.metric).compared == "gap"
    if is_gap:
        ax.axhline(0, color=style.BLACK, linewidth=0.7)
    routes = ~points.dense
    for at, shape, colour in (
        (routes & ~points.front, "o", style.GREY),
        (routes & points.front, "o", style.GREEN),
        (points.dense, "D", style.BLACK),
    ):
        bars = spread[:, at]
        ax.errorbar(points.cost[at], value[at], bars, fmt=shape, color=colour, elinewidth=0.7)
    lines = [_draw_front(ax, points, value)]
    if not points.relative:
        ax.set_xscale("log")
    ax.margins(0.16, 0.14)
    relative = " relative to dense (1 = dense)" if points.relative else ""
    ax.set_xlabel("training FLOPs" + relative)
    ax.set_ylabel(style.label(points.metric).replace("\n", "") + style.times(power))
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    tell_endings(ax, points.endings)
    if is_gap:
        lines.append(np.array([[[x, 0.0] for x in ax.get_xlim()]]))
    front = np.flatnonzero(points.front)[np.argsort(-points.cost[points.front], kind="stable")]
    order = dict.fromkeys([*np.flatnonzero(points.dense)[:1].tolist(), *front.tolist()])
    places = np.stack([points.cost, value], axis=1)
    write_names(ax, points.names, places, spread.T, np.concatenate(lines), order=order)


def _draw_front(ax: style.Axes, points: Pareto, value: Array) -> Array:
    """Draw the front and return its steps: [steps, 2, 2], the ends of level and upright lines."""
    order = np.flatnonzero(points.front)[np.argsort(points.cost[points.front], kind="stable")]
    x, y = points.cost[order], value[order]
    ax.plot(x, y, color=style.GREEN, linewidth=0.8, zorder=0, drawstyle="steps-post")
    corners = np.stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]], axis=1)
    return np.stack([corners[:-1], corners[1:]], axis=1)


def tell_endings(ax: style.Axes, endings: Mapping[str, Sequence[str]]) -> None:
    """Name the cells without a number, by state, below the axes; they have no place on it."""
    lines = []
    for state, names in endings.items():
        look = style.STATE_LOOKS[state]
        lines.append(f"{look.letter} {look.text}: {listed(list(map(style.arrow, names)))}")
    if lines:
        ax.figure.supxlabel("\n".join(lines), fontsize=6.5, x=0.02, ha="left")


def caption(points: Pareto) -> str:
    """Return the cells on the Pareto front, and whether the dense run is one of them."""
    front = [k for k in np.argsort(points.cost) if points.front[k]]
    if not front:
        return "No cell has both numbers yet."
    heading = "training FLOPs relative to dense" if points.relative else "training FLOPs"
    names = [
        f"{routed(points.names[k])} ({quantity(points.cost[k], '' if points.relative else 'FLOP')})"
        for k in front
    ]
    parts = [
        f"Pareto front, cheapest first ({heading}): {listed(names)}.",
        "No cell is both cheaper and better than one of these.",
    ]
    if points.dense[front].any():
        parts.append("The dense run is on it: no cheaper cell is as good.")
    elif points.dense.any():
        parts.append(
            "The dense run is not on it: another cell costs less and is as good or better."
        )
    if not points.measured_as:
        parts.append("No intervals: one seed.")
    return " ".join(parts)


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    flops = records.frame.get(TRAIN_FLOPS, pd.Series(dtype=float)).dropna()
    varied = len(flops) > 0 and flops.max() > 1.01 * flops.min()  # not where they are matched
    for metric in quality_metrics(records.frame)[:2]:
        points = pareto(records.frame, metric) if varied else None
        if points is not None and len(points.value) > 2:
            fig, (ax,) = style.figure(height=2.5)
            draw_pareto(points, ax)
            yield Drawn(named("pareto", metric), caption(points), fig, metric)


PARETO = FigureKind("Quality against training FLOPs", _drawn)
