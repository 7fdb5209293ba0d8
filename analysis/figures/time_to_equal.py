"""Time to equal quality: what dense training costs to be as good, over what another run costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.curves import curves
from tread_lab.analysis.figures.over_training import STEPS
from tread_lab.analysis.figures.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREY,
    Axes,
    arrow,
    halo,
    label,
    power_of_ten,
    times,
)
from tread_lab.analysis.tables import published
from tread_lab.records.metric_names import TRAIN_SECONDS, lower_is_better

Array = NDArray[np.float64]
UNITS = {"cost/train_seconds": "training seconds", "cost/train_flops": "training FLOPs"}


@dataclass(frozen=True)
class Progress:
    """Quality at rising cost."""

    name: str
    dense: bool
    cost: Array
    value: Array


@dataclass(frozen=True)
class Factor:
    """One speed-up: the cost at which dense training reaches `level` over that of another curve.

    NaN where the other curve never reaches it within its points.
    """

    name: str
    level: float
    dense_cost: float
    cost: float

    @property
    def value(self) -> float:
        """Dense cost over the other's: above 1 the other is faster."""
        return self.dense_cost / self.cost


@dataclass(frozen=True)
class TimeToEqual:
    """Curves of quality against cost with the factors between them, dense first."""

    metric: str
    unit: str
    curves: tuple[Progress, ...]
    factors: tuple[Factor, ...]


def cost_to_reach(cost: Array, value: Array, level: float, *, lower: bool = True) -> float:
    """The least cost at which a curve is as good as `level`; NaN if it never is.

    Between two points the value is taken as linear in the logarithm of the cost.
    """
    order = np.argsort(cost)
    x, y = np.log(cost[order]), (value if lower else -value)[order]
    level = level if lower else -level
    for k in np.flatnonzero(y <= level)[:1]:
        if k == 0:
            return float(np.exp(x[0]))
        share = (y[k - 1] - level) / (y[k - 1] - y[k])
        return float(np.exp(x[k - 1] + share * (x[k] - x[k - 1])))
    return float("nan")


def time_to_equal(frame: pd.DataFrame, metric: str, *, cost: str = TRAIN_SECONDS) -> TimeToEqual:
    """Curves over the budgets of a sweep; factors at the best value both reached.

    Each point is a run trained to its own end, so the schedule of the learning rate ended too.

    Raises:
        UserError: no such metric, or training steps are no axis of the sweep.
    """
    found = []
    for curve in curves(frame, metric, STEPS, cost=cost).curves:
        known = np.isfinite(curve.value) & np.isfinite(curve.cost)
        if known.any():
            found.append(Progress(curve.name, curve.dense, curve.cost[known], curve.value[known]))
    lower = lower_is_better(metric)
    return TimeToEqual(metric, UNITS.get(cost, cost), tuple(found), _factors(found, lower=lower))


def published_time_to_equal() -> TimeToEqual:
    """DiT-XL/2 on ImageNet-256, digitised from the paper's first figure, and its two factors."""
    found = [
        Progress(name, name == "DiT", *(np.array(column, float) for column in zip(*points)))
        for name, points in published.TEASER.items()
    ]
    dense, routed = found
    factors = []
    for level, hours in zip(dense.value[1:], dense.cost[1:]):
        reached = cost_to_reach(routed.cost, routed.value, float(level))
        factors.append(Factor(routed.name, float(level), float(hours), reached))
    return TimeToEqual("FID", "A100 GPU-hours", tuple(found), tuple(factors))


def factors_frame(found: TimeToEqual) -> pd.DataFrame:
    """The factors as a table."""
    columns = ["curve", "reaches", "dense cost", "cost", "factor"]
    rows = [(f.name, f.level, f.dense_cost, f.cost, f.value) for f in found.factors]
    return pd.DataFrame(rows, columns=columns)


def draw_time_to_equal(found: TimeToEqual, ax: Axes) -> None:
    """Curves against cost, and at every level an arrow from dense to the other's cost."""
    power = power_of_ten(np.concatenate([np.zeros(1), *(c.value for c in found.curves)]))
    scale = 10.0**power
    colours = iter((BLUE, *CYCLE[1:]) * 9)
    shades: dict[str, str] = {}
    for k, curve in enumerate(found.curves):
        shades[curve.name] = BLACK if curve.dense else next(colours)
        ax.plot(
            curve.cost,
            curve.value / scale,
            "--D" if curve.dense else "-" + "os^vP"[k % 5],
            color=shades[curve.name],
            label=arrow(curve.name),
        )
    for factor in found.factors:
        if np.isfinite(factor.value):
            _draw_factor(ax, factor, factor.level / scale, shades[factor.name])
    ax.set_xscale("log")
    ax.set_xlabel(found.unit)
    ax.set_ylabel(label(found.metric) + times(power))
    ax.legend(loc="best")


def _draw_factor(ax: Axes, factor: Factor, level: float, colour: str) -> None:
    ends = {"arrowstyle": "-|>", "color": colour, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 2}
    ax.annotate("", (factor.cost, level), (factor.dense_cost, level), arrowprops=ends)
    middle = (factor.cost * factor.dense_cost) ** 0.5
    name = ax.annotate(
        f"{factor.value:.2g}\N{MULTIPLICATION SIGN}",
        (middle, level),
        xytext=(0, 2.5),  # above the arrow, which may be shorter than its label
        textcoords="offset points",
        ha="center",
        va="bottom",
        color=colour if colour != GREY else BLACK,
        fontsize=6.5,
        zorder=5,
    )
    halo(name)


def _factors(found: list[Progress], *, lower: bool) -> tuple[Factor, ...]:
    """At the best value that both reached: the worse of the two curves' bests."""
    dense = next((curve for curve in found if curve.dense), None)
    if dense is None:
        return ()
    best, worse = (np.min, max) if lower else (np.max, min)
    factors = []
    for other in (curve for curve in found if not curve.dense):
        level = float(worse(best(dense.value), best(other.value)))
        ours, theirs = (cost_to_reach(c.cost, c.value, level, lower=lower) for c in (dense, other))
        factors.append(Factor(other.name, level, ours, theirs))
    return tuple(factors)
