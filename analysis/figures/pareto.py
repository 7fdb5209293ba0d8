"""Quality against executed training FLOPs: which cells nobody beats in both (the Pareto front)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.placements import measured_as, states_without_numbers
from tread_lab.analysis.figures.style import (
    BLACK,
    GREEN,
    GREY,
    STATE_LOOKS,
    Axes,
    arrow,
    halo,
    label,
    power_of_ten,
    times,
)
from tread_lab.frames import HIGH, LOW, UNIT, cells_frame, require_metric
from tread_lab.records.metric_names import TRAIN_FLOPS, metric_kind
from tread_lab.specs.errors import UserError

Array = NDArray[np.float64]
NAMED = 8  # points of the front that are labelled


@dataclass(frozen=True)
class Pareto:
    """One point a cell.

    Attributes:
        metric: the quality; for a gap the baseline is 0.
        cells: (role, cell) of each, as `cells_frame` has them.
        names: routes, with what else varies.
        dense: [points], which are baselines.
        cost: training FLOPs, routes counted; over the baseline's where there is one baseline.
        relative: whether `cost` is over the baseline's.
        value, low, high: quality and its interval.
        front: [points], which no other point beats in both quality and cost.
        endings: state -> names of the cells without a number.
        measured_as: what the intervals are over.
    """

    metric: str
    cells: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    dense: NDArray[np.bool_]
    cost: Array
    relative: bool
    value: Array
    low: Array
    high: Array
    front: NDArray[np.bool_]
    endings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    measured_as: str = ""


def pareto(frame: pd.DataFrame, metric: str = "gap/heldout") -> Pareto:
    """Every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, it is no measure of quality, or no run has recorded its cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"{metric} is no measure of quality, so it has no Pareto front")
    require_metric(frame, TRAIN_FLOPS)
    cells = cells_frame(frame)
    dense = cells["role"] == "baseline"
    value = cells[metric].mask(dense & cells[metric].isna(), 0.0 if _is_gap(metric) else np.nan)
    done = (cells["state"] == "completed") & value.notna() & cells[TRAIN_FLOPS].notna()
    names = cells["cell"]
    state = states_without_numbers(cells)
    endings = {
        str(key): tuple(names[rows.index]) for key, rows in cells[~done].groupby(state[~done])
    }
    cells, value, dense = cells[done], value[done], dense[done]
    relative = int(dense.sum()) == 1
    cost = cells[TRAIN_FLOPS].to_numpy(float)
    if relative:
        cost = cost / cost[dense.to_numpy(bool)][0]
    nothing = pd.Series(np.nan, index=cells.index)
    shown = pd.DataFrame({"value": value, "unit": cells[metric + UNIT], "n": cells["completed"]})
    return Pareto(
        metric=metric,
        cells=tuple(zip(cells["role"], cells["cell"])),
        names=tuple(names[done]),
        dense=dense.to_numpy(bool),
        cost=cost,
        relative=relative,
        value=value.to_numpy(float),
        low=np.asarray(cells.get(metric + LOW, nothing), dtype=np.float64),
        high=np.asarray(cells.get(metric + HIGH, nothing), dtype=np.float64),
        front=pareto_front(cost, value.to_numpy(float), lower=metric_kind(metric).sign > 0),
        endings=endings,
        measured_as=measured_as(shown[~dense]),
    )


def pareto_front(cost: Array, value: Array, *, lower: bool = True) -> NDArray[np.bool_]:
    """Which points no other beats: at most as costly and at least as good, one of them strictly."""
    front = np.zeros(len(cost), dtype=bool)
    signed = value if lower else -value
    best = np.inf
    for cost_now in np.unique(cost):
        at = np.flatnonzero(cost == cost_now)
        least = signed[at].min()
        if least < best:
            front[at[signed[at] == least]] = True
            best = least
    return front


def draw_pareto(points: Pareto, ax: Axes) -> None:
    """Points with intervals, the front joined by steps and named; dense runs are diamonds."""
    power = power_of_ten(np.concatenate([points.value, points.low, points.high]))
    value, low, high = (v / 10.0**power for v in (points.value, points.low, points.high))
    spread = np.nan_to_num(np.stack([value - low, high - value]))
    if _is_gap(points.metric):
        ax.axhline(0, color=BLACK, linewidth=0.7)
    for at, colour in ((~points.front, GREY), (points.front, GREEN)):
        at = at & ~points.dense
        ax.errorbar(
            points.cost[at], value[at], spread[:, at], fmt="o", color=colour, elinewidth=0.7
        )
    at = points.dense
    ax.errorbar(points.cost[at], value[at], spread[:, at], fmt="D", color=BLACK, elinewidth=0.7)
    _draw_front(ax, points, value)
    if not points.relative:
        ax.set_xscale("log")
    ax.margins(0.16, 0.14)
    ax.set_xlabel("training FLOPs" + (" relative to dense" if points.relative else ""))
    ax.set_ylabel(label(points.metric).replace("\n", "") + times(power))
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    _tell_endings(ax, points)


def _draw_front(ax: Axes, points: Pareto, value: Array) -> None:
    order = np.flatnonzero(points.front)[np.argsort(points.cost[points.front], kind="stable")]
    ax.plot(
        points.cost[order],
        value[order],
        drawstyle="steps-post",
        color=GREEN,
        linewidth=0.8,
        zorder=0,
    )
    below = metric_kind(points.metric).sign > 0
    across = points.cost if points.relative else np.log(points.cost)
    first = [*np.flatnonzero(points.dense)[:1], *order[::-1]]
    room = float(across.min()) + 0.3 * float(np.ptp(across))
    for k in _apart(first, points.names, across, value)[:NAMED]:
        left = bool(across[k] < room)  # of a point near the edge the name stands on the other side
        name = ax.annotate(
            arrow(points.names[k]),
            (points.cost[k], value[k]),
            xytext=(4.5 if left else -3.5, 3.5 if left == below else -3.5),
            textcoords="offset points",
            ha="left" if left else "right",
            va="bottom" if left == below else "top",
            fontsize=6.5,
        )
        halo(name)


def _apart(order: Sequence[int], names: Sequence[str], x: Array, y: Array) -> list[int]:
    """The points whose names do not run into those of earlier ones."""
    wide, high = (float(np.ptp(v)) or 1.0 for v in (x, y))
    kept: list[int] = []
    for k in order:
        room = 0.05 + 0.027 * len(names[k])
        if all(abs(x[k] - x[o]) > room * wide or abs(y[k] - y[o]) > 0.09 * high for o in kept):
            kept.append(k)
    return kept


def _tell_endings(ax: Axes, points: Pareto) -> None:
    """Cells without a number are named below the axes; they have no place on it."""
    lines = []
    for state, names in points.endings.items():
        look = STATE_LOOKS[state]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        lines.append(f"{look.letter} {look.text}: {', '.join(map(arrow, names[:6]))}{more}")
    if lines:
        ax.figure.supxlabel("\n".join(lines), fontsize=6.5, x=0.02, ha="left")


def _is_gap(metric: str) -> bool:
    return metric.startswith(("gap/", "delta/"))
