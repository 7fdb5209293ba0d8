"""Pareto fronts: quality against training FLOPs, and against what a guided image costs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import (
    NUMBERS,
    Drawn,
    Points,
    SweepRecords,
    cell_points,
    named,
    quality_metrics,
    sample_metrics,
)
from tread_lab.config.errors import UserError
from tread_lab.config.units import quantity, ratio
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    SAMPLE_FLOPS,
    TRAIN_FLOPS,
    metric_kind,
)
from tread_lab.records.run_state import RunState
from tread_lab.results import COUNT, HIGH, LOW, UNIT, cells_frame, listed, require_metric, routed
from tread_lab.results.ranking import training_price

_LETTERS = 19  # in an inch of a line
FRONT = (
    "Pareto front, cheapest first ({heading}): {names}. By their means no cell is both cheaper and"
    " better than one of these."
)
DENSE = {  # whether it is on the front
    True: " The dense run is on the front: no cheaper cell is as good.",
    False: " The dense run is not on the front: by its mean a cheaper cell is at least as good.",
}


@dataclass(frozen=True, kw_only=True)
class Front(Points):
    """Cells and baselines by cost and quality.

    Further columns: `cost`, in FLOPs or relative to the baseline, and `front`, whether the point is
    on the Pareto front (`pareto_front`).

    Attributes:
        price: the metric of the cost.
        relative: whether `cost` is relative to the only baseline.
    """

    price: str
    relative: bool

    @property
    def ordered(self) -> pd.DataFrame:
        """The points of the front, the cheapest first."""
        return self.rows[self.rows["front"]].sort_values("cost", kind="stable")

    @property
    def heading(self) -> str:
        """Label of the cost axis."""
        return metric_kind(self.price).label + " relative to dense" * self.relative


def pareto(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Front:
    """Return every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, not a quality metric, or no recorded cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"metric: must measure quality, got {metric}. Try heldout/loss.")
    require_metric(frame, TRAIN_FLOPS)
    cells = cells_frame(frame[frame["run"] != frame["baseline"]])  # a rate of 0 is the dense run
    return front_of_cells(cells, metric, training_price(cells))


def guidance_front(frame: pd.DataFrame, metric: str) -> Front:
    """Return every completed cell under every planned guidance, by the cost of an image.

    A point's name ends with its guidance, the suffix of a column such as `fd@1k w=2`.
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
    """Return the points of the rows of `cells_frame`."""
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
    """Return whether costs differ by more than the rounding of matched steps."""
    flops = rows.get(training_price(rows), pd.Series(dtype=float)).dropna()
    return len(flops) > 0 and bool(flops.max() > 1.01 * flops.min())


def pareto_front(cost: ArrayLike, value: ArrayLike, *, lower: bool = True) -> NDArray[np.bool_]:
    """Return which points are on the Pareto front: no other point is as cheap and as good."""
    signed = pd.Series(np.asarray(value) * (1 if lower else -1))
    least = signed.groupby(np.asarray(cost)).min()  # from the cheapest
    better = least < least.cummin().shift(fill_value=np.inf)
    at = least.where(better).loc[np.asarray(cost)]
    return np.asarray(signed.to_numpy() == at.to_numpy())


def draw_front(points: Front, ax: style.Axes) -> None:
    """Draw points with intervals, the front green and joined by steps; dense runs are
    diamonds."""
    rows, steps = points.measured, points.ordered
    dense = rows["role"] == "baseline"
    for part, look in (
        (rows[~dense & ~rows["front"]], {"color": style.GREY}),
        (rows[~dense & rows["front"]], {"color": style.GREEN}),
        (rows[dense], {"color": style.BLACK, "marker": "D"}),
    ):
        shape: dict[str, Any] = {"marker": "o", "linestyle": "none", "elinewidth": 0.7, **look}
        ax.errorbar(part["cost"], part["value"], style.bars(part), **shape)
    ax.step(steps["cost"], steps["value"], where="post", color=style.GREEN, linewidth=0.8, zorder=0)
    style.value_axis(ax.yaxis, points.metric, rows[NUMBERS])
    style.cost_axis(ax, rows["cost"])
    power = style.power_of_ten(rows["cost"]) if ax.get_xscale() == "linear" else 0
    unit = " (1 = dense)" if points.relative else style.times(power)
    style.scale_axis(ax.xaxis, points.heading + unit, 0 if points.relative else power)
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    if metric_kind(points.metric).compared == "gap":
        ax.axhline(0, color=style.BLACK, linewidth=0.6, zorder=0)
    _say_endings(points, ax)
    named = pd.concat([steps, rows[~rows["front"]]])
    style.name_points(ax, zip(named["cost"], named["value"], named["name"]))


def _say_endings(points: Front, ax: style.Axes) -> None:
    """Say below the axes which cells lack a number."""
    lines = []
    for state, rows in points.rows[points.rows["value"].isna()].groupby("state"):
        look = style.STATE_LOOKS[str(state)]
        lines.append(f"{look.letter} {look.text}: {listed([*map(routed, rows['name'])])}")
    if lines:
        width = int(_LETTERS * ax.figure.get_figwidth())  # type: ignore[union-attr]
        text = "\n".join(textwrap.fill(line, width) for line in lines)
        ax.figure.supxlabel(text, fontsize=6.5, x=0.02, ha="left")


def pareto_caption(points: Front) -> str:
    """Return the cells on the Pareto front, and whether the only dense run is one of them."""
    front = points.ordered
    if front.empty:
        return "No cell has both numbers yet."
    price = ratio if points.relative else partial(quantity, unit="FLOP")
    names = [f"{routed(name)} ({price(c)})" for name, c in zip(front["name"], front["cost"])]
    on_front = bool((front["role"] == "baseline").any())
    dense = DENSE[on_front] if points.relative else ""
    seeds = "" if points.measured_as else " No intervals: one seed."
    return FRONT.format(heading=points.heading, names=listed(names)) + dense + seeds


def guidances(records: SweepRecords) -> Iterator[Drawn]:
    """Guidance: quality against the cost of an image"""
    guided = [c.split(" ")[0] for c in sample_metrics(records.frame) if " w=" in c]
    for metric in dict.fromkeys(guided):
        points = guidance_front(records.frame, metric)
        if len(points.measured) > 2:
            yield _drawn("guidance", points, width=style.PAGE)


def costs(records: SweepRecords) -> Iterator[Drawn]:
    """Quality against training FLOPs"""
    for metric in quality_metrics(records.frame)[:2]:
        points = pareto(records.frame, metric) if vary_in_cost(records.frame) else None
        if points is not None and len(points.measured) > 2:
            yield _drawn("pareto", points, width=style.COLUMN)


def _drawn(name: str, points: Front, *, width: float) -> Drawn:
    fig, (ax,) = style.figure(width=width, height=2.5)
    draw_front(points, ax)
    return Drawn(named(name, points.metric), pareto_caption(points), fig)
