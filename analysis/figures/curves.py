"""A metric along one axis of a sweep: one curve for every setting of the other axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.placements import states_without_numbers
from tread_lab.frames import HIGH, LOW, UNIT, cells_frame, require_metric
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.labels import without_axis

Array = NDArray[np.float64]


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
    """The curves of one metric, baselines first; `measured_as` tells what intervals are over."""

    metric: str
    axis: str
    curves: tuple[Curve, ...]
    measured_as: str


def curves(
    frame: pd.DataFrame, metric: str, axis: str, *, cost: str = "cost/train_flops"
) -> Curves:
    """`metric` along the numeric column `axis`, from the rows of `trials_frame`.

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
    cells = cells[cells[axis].notna()].assign(
        name=cells["cell"].map(lambda label: without_axis(label, axis))
    )
    groups = cells.groupby("name", sort=False)
    found = [_curve(str(name), rows, metric, axis, cost) for name, rows in groups]
    found.sort(key=lambda curve: not curve.dense)
    units = set(cells.loc[cells[metric].notna(), metric + UNIT])
    seeds = int(cells["completed"].max()) if len(cells) else 0
    over = f"95% over {seeds} seeds" if units == {"seeds"} else ""
    return Curves(metric, axis, tuple(found), over)


def _curve(name: str, rows: pd.DataFrame, metric: str, axis: str, cost: str) -> Curve:
    rows = rows.sort_values(axis)
    done = (rows["state"] == "completed") & rows[metric].notna()
    states = rows["state"].where(done, states_without_numbers(rows))
    nothing = pd.Series(np.nan, index=rows.index)

    def column(key: str) -> Array:
        return np.asarray(rows.get(key, nothing).where(done), dtype=np.float64)

    return Curve(
        name=name,
        dense=bool((rows["role"] == "baseline").all()),
        x=rows[axis].to_numpy(float),
        cost=column(cost),
        value=column(metric),
        low=column(metric + LOW),
        high=column(metric + HIGH),
        states=tuple(states),
    )
