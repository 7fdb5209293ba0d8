"""Pareto fronts: quality against training FLOPs, and against what a guided image costs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import (
    Drawn,
    SweepRecords,
    figure_kind,
    named,
    quality_metrics,
    sample_metrics,
)
from tread_lab.analysis.figures.points import NUMBERS, Points, cell_points
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    UNIT,
    cells_frame,
    listed,
    require_metric,
    routed,
    with_metrics,
)
from tread_lab.frames.ranking_table import training_price
from tread_lab.records.metric_names import (
    FAMILY_FLOPS,
    GAP_HELDOUT,
    SAMPLE_FLOPS,
    TRAIN_FLOPS,
    metric_kind,
)
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import quantity, ratio

_LETTER, _LINE = 3.8, 8.5  # width and height of names, points


@dataclass(frozen=True, kw_only=True)
class Front(Points):
    """Cells and baselines, by what they cost and by a metric of quality.

    Their rows also have `cost`, in FLOPs with routes counted or over the baseline's, and `front`:
    whether no other point beats them, see `pareto_front`.

    Attributes:
        price: the metric of the cost.
        relative: whether `cost` is over the baseline's, as where one was planned.
    """

    price: str
    relative: bool

    @property
    def ordered(self) -> pd.DataFrame:
        """The points of the front, the cheapest first."""
        return self.rows[self.rows["front"]].sort_values("cost", kind="stable")

    @property
    def heading(self) -> str:
        """What the cost is."""
        return metric_kind(self.price).label + " relative to dense" * self.relative


def pareto(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Front:
    """Return every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, it is no measure of quality, or no run has recorded its cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"{metric} is no measure of quality, so it has no Pareto front")
    require_metric(frame, TRAIN_FLOPS)
    cells = cells_frame(with_metrics(frame, metric, TRAIN_FLOPS, FAMILY_FLOPS))
    return front_of_cells(cells, metric, training_price(cells))


def guidance_front(frame: pd.DataFrame, metric: str) -> Front:
    """Return every completed cell under every planned guidance, by the cost of an image.

    A point's name ends with its setting: what a column such as `fd@1k w=2` adds to the metric.
    """
    planned = [c for c in frame.attrs.get("planned", ()) if c.split(" ")[0] == metric]
    cells, rows = cells_frame(frame), []
    cells = cells[cells["state"] == RunState.COMPLETED]
    for setting in [column.removeprefix(metric) for column in planned] or [""]:
        found = {metric + end: metric + setting + end for end in ("", LOW, HIGH, COUNT, UNIT)}
        found[SAMPLE_FLOPS] = SAMPLE_FLOPS + setting
        part = cells[["role", "state", "reason"]].assign(cell=cells["cell"] + setting)
        rows.append(part.assign(**{name: cells.get(column) for name, column in found.items()}))
    return front_of_cells(pd.concat(rows, ignore_index=True), metric, SAMPLE_FLOPS)


def front_of_cells(cells: pd.DataFrame, metric: str, price: str) -> Front:
    """Return the points of rows as `cells_frame` has them."""
    kind = metric_kind(metric)
    if kind.compared == "gap":
        dense = cells["role"] == "baseline"
        cells = cells.assign(**{metric: cells[metric].mask(dense & cells[metric].isna(), 0.0)})
    known = cells[price].notna()
    found = cell_points(cells.assign(**{metric: cells[metric].where(known)}), metric)
    measured = found.measured
    cost, dense = measured[price].astype(float), measured["role"] == "baseline"
    relative = int(dense.sum()) == int((cells["role"] == "baseline").sum()) == 1
    cost = cost / cost[dense].iloc[0] if relative else cost
    front = pareto_front(cost, measured["value"], lower=kind.sign > 0)
    rows = found.rows.assign(cost=cost, front=found.rows.index.isin(measured.index[front]))
    return Front(metric, rows, found.measured_as, price=price, relative=relative)


def vary_in_cost(rows: pd.DataFrame) -> bool:
    """Return whether trials or cells differ in their price by more than matching leaves."""
    flops = rows.get(training_price(rows), pd.Series(dtype=float)).dropna()
    return len(flops) > 0 and bool(flops.max() > 1.01 * flops.min())


def pareto_front(cost: ArrayLike, value: ArrayLike, *, lower: bool = True) -> NDArray[np.bool_]:
    """Return which points no other beats: none costs as little and is as good, or better in one."""
    signed = pd.Series(np.asarray(value) * (1 if lower else -1))
    least = signed.groupby(np.asarray(cost)).min()  # from the cheapest
    better = least < least.cummin().shift(fill_value=np.inf)
    at = least.where(better).loc[np.asarray(cost)]
    return np.asarray(signed.to_numpy() == at.to_numpy())


def draw_front(points: Front, ax: style.Axes) -> None:
    """Draw points with intervals, the front green and joined by steps; dense runs are diamonds."""
    rows, steps = points.measured, points.ordered
    colours = np.where(rows["front"], style.GREEN, style.GREY)
    for k, (dense, spread) in enumerate(zip(rows["role"] == "baseline", style.bars(rows).T)):
        colour, mark = (style.BLACK, "D") if dense else (colours[k], "o")
        look: dict[str, Any] = {"fmt": mark, "elinewidth": 0.7, "yerr": spread[:, None]}
        style.draw_point(ax, rows["cost"].iloc[k], rows["value"].iloc[k], colour, **look)
    x, y = (np.repeat(steps[name].to_numpy(), 2) for name in ("cost", "value"))
    ax.plot(x[1:], y[:-1], color=style.GREEN, linewidth=0.8, zorder=0, label="front")
    style.value_axis(ax.yaxis, points.metric, rows[NUMBERS])
    ax.set_ylabel(ax.get_ylabel().replace("\n", ""))
    if points.relative:
        ax.locator_params(axis="x", nbins=4)
    else:
        style.cost_axis(ax, rows["cost"])
    power = style.power_of_ten(rows["cost"]) if ax.get_xscale() == "linear" else 0
    unit = " (1 = dense)" if points.relative else style.times(power)
    style.scale_axis(ax.xaxis, points.heading + unit, power)
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    ax.margins(0.14, 0.16)
    if metric_kind(points.metric).compared == "gap":
        ax.axhline(0, color=style.BLACK, linewidth=0.6, zorder=0)
    _say_endings(points, ax)
    _write_names(points, ax)


def _write_names(points: Front, ax: style.Axes) -> None:
    """Name the front on its empty side, each a line past the one before, and dense opposite.

    What the names of all cells have in common is left out.
    """
    rows, front = points.measured, points.ordered.index
    dense, words = rows["role"] == "baseline", rows["name"].str.split()
    trials = [set(each[1:]) for each in words[~dense]]
    shared = set.intersection(*trials) if trials else set()
    names = {k: " ".join(w for w in each if w not in shared) for k, each in words.items()}
    places = dict(zip(rows.index, zip(rows["cost"], rows["value"])))
    point, up = ax.figure.dpi / 72, -metric_kind(points.metric).sign  # up is better, or down
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]  # all is laid out now
    if front.empty:
        return
    to_axes = ax.transData - ax.transAxes
    lefts = [0.0]  # of the axes, as a share of their width, with room for a name before its point
    for k in front:
        room = min((_LETTER * len(names[k]) + 4) * point / ax.get_window_extent().width, 0.8)
        lefts.append((to_axes.transform(places[k])[0] - room) / (1 - room))
    ax.set_xlim(left=to_axes.inverted().transform((min(lefts), 0))[0])
    offsets = {}
    for _ in range(3):  # room for the last name moves the points, and so the names
        last = -math.inf
        for k in front:
            height = up * ax.transData.transform(places[k])[1] / point
            last = max(height + 3, last + _LINE)
            offsets[k] = up * (last - height)
        end = ax.transData.inverted().transform((0, up * (last + _LINE + 2) * point))[1]
        ax.set_ylim(min(end, ax.get_ylim()[0]), max(end, ax.get_ylim()[1]))
    for k, offset in offsets.items():
        _write(ax, names[k], places[k], (-4, offset))
    for k in rows.index[dense & ~rows["front"]][: int(points.relative)]:
        side = 4 if places[k][0] < rows["cost"].max() else -4  # where the axes do not end
        _write(ax, names[k], places[k], (side, -4 * up))


def _write(ax: style.Axes, name: str, at: tuple[float, float], offset: tuple[float, float]) -> None:
    """Write a name beside a point, at an offset in points."""
    text = ax.annotate(style.arrow(name), at, offset, textcoords="offset points", fontsize=6.5)
    text.set_horizontalalignment("left" if offset[0] > 0 else "right")
    text.set_verticalalignment("bottom" if offset[1] > 0 else "top")
    text.set_in_layout(False)
    style.halo(text)


def _say_endings(points: Front, ax: style.Axes) -> None:
    """Say below the axes which cells lack a number."""
    lines = []
    for state, rows in points.rows[points.rows["value"].isna()].groupby("state"):
        look = style.STATE_LOOKS[str(state)]
        lines.append(f"{look.letter} {look.text}: {listed(list(rows['name']))}")
    if lines:
        width = int(72 * ax.figure.get_figwidth() / _LETTER)  # type: ignore[union-attr]
        text = "\n".join(textwrap.fill(line, width) for line in lines)
        ax.figure.supxlabel(text.replace("->", r"$\to$"), fontsize=6.5, x=0.02, ha="left")


def pareto_caption(points: Front) -> str:
    """Return the cells on the Pareto front, and whether the only dense run is one of them."""
    front = points.ordered
    if front.empty:
        return "No cell has both numbers yet."
    price = ratio if points.relative else partial(quantity, unit="FLOP")
    names = [f"{routed(name)} ({price(c)})" for name, c in zip(front["name"], front["cost"])]
    parts = [
        f"Pareto front, cheapest first ({points.heading}): {listed(names)}.",
        "No cell is both cheaper and better than one of these.",
    ]
    if points.relative:
        parts.append(
            "The dense run is on it: no cheaper cell is as good."
            if (front["role"] == "baseline").any()
            else "The dense run is not on it: another cell costs less and is as good or better."
        )
    if not points.measured_as:
        parts.append("No intervals: one seed.")
    return " ".join(parts)


@figure_kind()
def guidances(records: SweepRecords) -> Iterator[Drawn]:
    """Guidance: quality against the cost of an image"""
    guided = [c.split(" ")[0] for c in sample_metrics(records.frame) if " w=" in c]
    for metric in dict.fromkeys(guided):
        points = guidance_front(records.frame, metric)
        if len(points.measured) > 2:
            yield _drawn("guidance", points, width=style.PAGE)


@figure_kind()
def costs(records: SweepRecords) -> Iterator[Drawn]:
    """Quality against training FLOPs"""
    for metric in quality_metrics(records.frame)[:2]:
        points = pareto(records.frame, metric) if vary_in_cost(records.frame) else None
        if points is not None and len(points.measured) > 2:
            yield _drawn("pareto", points, width=style.COLUMN)


def _drawn(name: str, points: Front, *, width: float) -> Drawn:
    fig, (ax,) = style.figure(width=width, height=2.5)
    draw_front(points, ax)
    return Drawn(named(name, points.metric), pareto_caption(points), fig, points.metric)
