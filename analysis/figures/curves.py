"""A metric along an axis of a sweep, one curve per setting of the others; the selection rate."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named
from tread_lab.analysis.figures.placements import Array, measured_as, numbers_of
from tread_lab.analysis.figures.sentences import metric_text, routed, span
from tread_lab.analysis.tables import published
from tread_lab.frames import cells_frame, delta_column, require_metric, with_delta
from tread_lab.records.metric_names import GAP_HELDOUT, TRAIN_FLOPS, metric_kind
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.labels import without_axis
from tread_lab.specs.trials import SPEND, STEPS

RATE = "rate"


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

    Cells are joined that differ in `axis` alone; over steps of training also in what they spend,
    which gives them their steps. A cell has a number only if all its seeds completed.

    Raises:
        UserError: no such metric, or no numeric axis of that name.
    """
    require_metric(frame, metric)
    if axis not in frame or not pd.api.types.is_numeric_dtype(frame[axis]):
        axes = frame.attrs.get("axes", ())
        raise UserError(f"no numeric axis {axis!r} in this sweep{suggest(axis, axes)}")
    cells = cells_frame(frame)
    own = (axis, SPEND) if axis == STEPS else (axis,)
    names = cells["cell"].map(lambda cell: functools.reduce(without_axis, own, cell))
    placed = cells[axis].notna()
    ended = dict(zip(names[~placed], cells.loc[~placed, "state"]))  # a seed that has no stages
    cells["state"] = names.map(ended).fillna(cells["state"])
    cells, names = cells[placed], names[placed]
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
    states: list[str] = []
    dense = sum(curve.dense for curve in found.curves)
    for k, curve in enumerate(found.curves):
        known = np.isfinite(curve.value)
        shape, colour = style.curve_look(k - dense, dense=curve.dense)
        spread = style.bars(curve.value, curve.low, curve.high)[:, known]
        x, value, name = curve.x[known], curve.value[known], style.arrow(curve.name)
        ax.errorbar(x, value, spread, fmt=shape, color=colour, label=name)
        missing = np.array(curve.states)[~known].tolist()
        for x, state in zip(curve.x[~known], missing):
            style.mark_state(ax, float(x), state)
        states += missing
    values = [v for curve in found.curves for v in (curve.value, curve.low, curve.high)]
    style.value_axis(ax.yaxis, found.metric, *values)
    handles, _ = ax.get_legend_handles_labels()
    if legend:
        handles = [*handles, *style.state_legend(states)]
        ax.legend(handles=handles, **style.place_legend(handles))


def rates(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Curves:
    """Return one curve for every route (and other axis) with at least two rates.

    Rates are 0 <= s < 1; at s = 0 stands the baseline itself, whose difference is 0.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    found = curves(trials[trials["role"] == "trial"], delta_column(metric), RATE)
    several = tuple(_from_zero(curve) for curve in found.curves if len(set(curve.x)) > 1)
    return replace(found, curves=several)


def _from_zero(curve: Curve) -> Curve:
    """Put the baseline in front: no difference to itself, no interval."""
    first = {"x": 0.0, "cost": np.nan, "value": 0.0, "low": np.nan, "high": np.nan}
    led: dict[str, Any] = {k: np.insert(getattr(curve, k), 0, v) for k, v in first.items()}
    return replace(curve, **led, states=("completed", *curve.states))


def published_rates() -> Curves:
    """Return Table 5: FID-50K of DiT-B/2 less that of the dense run; another metric and model."""
    table = published.table("Table 5")
    rate, fid = (table[c].to_numpy(float) for c in ("selection_rate", "fid"))
    return Curves("delta/FID", (bare_curve("2->8", False, rate, fid - fid[0]),), "")


def best_rate(found: Curves) -> tuple[Curve, int] | None:
    """Return the curve and the index of the best value, the baseline's own zero included.

    `None` where no rate has a number, or no value of the metric is better.
    """
    sign = metric_kind(found.metric).sign
    measured = [
        (sign * curve.value[k], n, k)
        for n, curve in enumerate(found.curves)
        for k in np.flatnonzero(np.isfinite(curve.value))
    ]
    if not sign or all(found.curves[n].x[k] == 0 for _, n, k in measured):
        return None
    _, n, k = min(measured)
    return found.curves[n], int(k)


def draw_rates(found: Curves, ax: style.Axes) -> None:
    """Draw one line per route; cells without a number are lettered on the axis."""
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    missing = any(state != "completed" for curve in found.curves for state in curve.states)
    draw_curves(found, ax, legend=missing or len(found.curves) > 1)
    ax.set_xlabel("selection rate $s$, share of tokens routed")
    ax.set_xlim(-0.05, 1.0)


def rates_caption(found: Curves) -> str:
    """Return the best rate and its route."""
    best = best_rate(found)
    if best is None:
        return "No rate has a number yet."
    curve, k = best
    if curve.x[k] == 0:
        return f"No rate has a better mean than dense training ({metric_text(found.metric)})."
    interval = span(curve.value[k], curve.low[k], curve.high[k], found.measured_as)
    name = routed(curve.name)
    return f"Best is s = {curve.x[k]:g} on {name}: {metric_text(found.metric)} {interval}."


@figure_kind(compares=True)
def selection_rates(records: SweepRecords) -> Iterator[Drawn]:
    """How many tokens are routed"""
    for metric in records.compared:
        found = rates(records.frame, metric)
        if best_rate(found) is not None:
            height = style.legend_height(len(found.curves))
            fig, (ours, theirs) = style.figure(width=style.PAGE, height=height, columns=2)
            draw_rates(found, ours)
            ours.set_title(records.title(found.measured_as))
            draw_rates(published_rates(), theirs)
            theirs.set_title(published.TABLE5_TITLE)
            yield Drawn(named("selection_rate", metric), rates_caption(found), fig, metric)
