"""A metric along one axis of a sweep: one curve for every setting of the other axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.placements import Array, measured_as, numbers_of
from tread_lab.frames import cells_frame, require_metric
from tread_lab.records.metric_names import TRAIN_FLOPS
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.labels import without_axis


@dataclass(frozen=True)
class Curve:
    """A metric at rising values of the axis.

    Attributes:
        name: `dense`, or the route with its rate, and what else is fixed.
        dense: whether these are baselines.
        x: values of the axis, one a cell.
        cost: of each cell (training FLOPs or seconds), NaN where unknown.
        value, low, high: mean over seeds and its interval; NaN without numbers.
        states: `completed`, or why there is no number.
    """

    name: str
    dense: bool
    x: Array
    cost: Array
    value: Array
    low: Array
    high: Array
    states: tuple[str, ...]


@dataclass(frozen=True)
class Curves:
    """The curves of one metric, baselines first; `measured_as` says what intervals are over."""

    metric: str
    curves: tuple[Curve, ...]
    measured_as: str


def curves(frame: pd.DataFrame, metric: str, axis: str, *, cost: str = TRAIN_FLOPS) -> Curves:
    """Return `metric` along the numeric column `axis`, from the rows of `trials_frame`.

    Cells are joined that differ in `axis` alone. A cell has a number only if all its seeds
    completed.

    Raises:
        UserError: no such metric, or no numeric axis of that name.
    """
    require_metric(frame, metric)
    if axis not in frame or not pd.api.types.is_numeric_dtype(frame[axis]):
        axes = frame.attrs.get("axes", ())
        raise UserError(f"no numeric axis {axis!r} in this sweep{suggest(axis, axes)}")
    cells = cells_frame(frame)
    cells = cells[cells[axis].notna()]
    names = cells["cell"].map(lambda cell: without_axis(cell, axis))
    joined = [
        _curve(str(name), rows, metric, axis, cost)
        for name, rows in cells.groupby(names, sort=False)
    ]
    joined.sort(key=lambda curve: not curve.dense)
    return Curves(metric, tuple(joined), measured_as(cells[cells[metric].notna()], metric))


def _curve(name: str, rows: pd.DataFrame, metric: str, axis: str, cost: str) -> Curve:
    rows = rows.sort_values(axis)
    value, low, high, states = numbers_of(rows, metric)
    spent = rows.reindex(columns=[cost])[cost].to_numpy(float)
    return Curve(
        name=name,
        dense=bool((rows["role"] == "baseline").all()),
        x=rows[axis].to_numpy(float),
        cost=np.where(states == "completed", spent, np.nan),
        value=value,
        low=low,
        high=high,
        states=tuple(states.tolist()),
    )


def bare_curve(name: str, dense: bool, x: Array, value: Array) -> Curve:
    """Return a curve over its cost, without intervals and with a number everywhere."""
    none = np.full(len(x), np.nan)
    return Curve(name, dense, x, x, value, none, none, ("completed",) * len(x))


def draw_curves(found: Curves, ax: style.Axes, *, legend: bool = True) -> None:
    """Draw dense curves black and dashed, others in colour; cells without a number are lettered."""
    values = [v for curve in found.curves for v in (curve.value, curve.low, curve.high)]
    power = style.power_of_ten(np.concatenate([np.zeros(1), *values]))
    states: list[str] = []
    dense = sum(curve.dense for curve in found.curves)
    for k, curve in enumerate(found.curves):
        value, low, high = (v / 10.0**power for v in (curve.value, curve.low, curve.high))
        spread = np.nan_to_num(np.stack([value - low, high - value]))
        known = np.isfinite(value)
        shape, colour = style.curve_look(k - dense, dense=curve.dense)
        ax.errorbar(
            curve.x[known],
            value[known],
            spread[:, known],
            fmt=shape,
            color=colour,
            label=style.arrow(curve.name),
        )
        missing = np.array(curve.states)[~known].tolist()
        for x, state in zip(curve.x[~known], missing):
            style.mark_state(ax, float(x), state)
        states += missing
    ax.set_ylabel(style.label(found.metric.split(" ")[0]) + style.times(power))
    handles, _ = ax.get_legend_handles_labels()
    if legend:
        handles = [*handles, *style.state_legend(states)]
        ax.legend(handles=handles, **style.BESIDE if len(handles) > style.MANY else {"loc": "best"})
