"""Time to equal quality: curves of quality over FLOPs, and the factor of cost between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis import paper_tables
from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.curves import (
    Curves,
    curve_looks,
    curves,
    training_axis,
    training_metrics,
)
from tread_lab.analysis.figures.points import Drawn, SweepRecords, bare_rows, named
from tread_lab.config.units import quantity
from tread_lab.records.metric_names import TRAIN_FLOPS, lower_is_better, metric_kind
from tread_lab.results import STEP, number, routed
from tread_lab.results.intervals import t_interval

BOUNDS = {
    "": "",
    "at least": "\N{GREATER-THAN OR EQUAL TO}",
    "at most": "\N{LESS-THAN OR EQUAL TO}",
}
REACHES = {
    "": "{ours} instead of {theirs}: a factor of",
    "at least": "at most {ours} instead of {theirs}: a factor of at least",
    "at most": "{ours} instead of at most {theirs}: a factor of at most",
}
FACTORS = (
    "{factors}. A factor is the dense run's cost ({cost}) to reach a value over the other's, at the"
    " best value that both reached."
)


@dataclass(frozen=True)
class Factor:
    """One speed-up: the cost at which dense training reaches `level` over that of another curve.

    Attributes:
        bound: `at least` or `at most`, where a curve is better than `level` at its first point, so
            that its cost to reach it is at most that point's; empty for a number.
        low, high: 95% interval over seeds, of the logarithms of their factors; NaN without.
    """

    name: str
    level: float
    dense_cost: float
    cost: float
    bound: str = ""
    low: float = float("nan")
    high: float = float("nan")

    @property
    def value(self) -> float:
        """Dense cost over the other's: above 1 the other is faster."""
        return self.dense_cost / self.cost


@dataclass(frozen=True, kw_only=True)
class TimeToEqual(Curves):
    """Curves of quality against cost with the factors between them, dense first.

    Attributes:
        cost, unit: `training FLOPs` and `FLOP`.
    """

    cost: str
    unit: str
    factors: tuple[Factor, ...]


def cost_to_reach(curve: pd.DataFrame, level: float) -> float:
    """Return the least cost at which a curve is as low as `level`; NaN if it never is.

    Between two points the value is taken as linear in the logarithm of the cost. The first point is
    the answer where it is lower already: an upper bound.
    """
    curve = curve.sort_values("x")
    x, y = np.log(curve["x"].to_numpy(float)), curve["value"].to_numpy(float)
    for k in np.flatnonzero(y <= level)[:1]:
        if k == 0:
            return float(curve["x"].iloc[0])
        share = (y[k - 1] - level) / (y[k - 1] - y[k])
        return float(np.exp(x[k - 1] + share * (x[k] - x[k - 1])))
    return float("nan")


def time_to_equal(frame: pd.DataFrame, metric: str, *, cost: str) -> TimeToEqual:
    """Return curves over training, and factors at the best value both reached.

    A factor takes two seeds or more: equal curves of one seed have factors from 0.67 to 1.5.

    A point is a stage of one run, or a run of its own length: rows of `training_frame`.

    Raises:
        UserError: no such metric, or the sweep has no several steps of training.
    """
    found = _curves(frame, metric, cost)
    of_seeds: dict[str, list[float]] = {}
    for _, part in frame.groupby("seed"):
        for factor in _factors(_curves(part, metric, cost)):
            if not factor.bound and np.isfinite(factor.value):
                of_seeds.setdefault(factor.name, []).append(np.log(factor.value))
    factors = []
    for factor in _factors(found) if frame["seed"].nunique() > 1 else ():
        if factor.bound:
            factors.append(factor)
        elif len(logs := of_seeds.get(factor.name, [])) > 1:
            _, low, high = np.exp(t_interval(np.array(logs))).tolist()
            factors.append(replace(factor, low=low, high=high))
    kind = metric_kind(cost)
    return TimeToEqual(
        metric,
        found.rows,
        warning=found.warning,
        cost=kind.label or cost,
        unit=kind.unit,
        factors=tuple(factors),
    )


def _curves(frame: pd.DataFrame, metric: str, cost: str) -> Curves:
    """Return the curves against cost."""
    found = curves(frame, metric, training_axis(frame))
    rows = found.measured.assign(x=found.measured.get(cost, np.nan))
    return replace(found, rows=rows[rows["x"] > 0])  # a logarithm has no zero


def published_time_to_equal() -> TimeToEqual:
    """Return DiT-XL/2 on ImageNet-256, digitised from the paper's first figure: its two factors."""
    points = [(name, *point) for name, points in paper_tables.TEASER.items() for point in points]
    names, hours, fid = zip(*points)
    rows = bare_rows(curve=names, dense=[name == "DiT" for name in names], x=hours, value=fid)
    dense, routed = rows[rows["dense"]], rows[~rows["dense"]]
    factors = [
        Factor(routed["curve"].iloc[0], level, cost, cost_to_reach(routed, level))
        for level, cost in zip(dense["value"][1:], dense["x"][1:])
    ]
    return TimeToEqual("FID", rows, cost="A100 GPU-hours", unit="GPU-hours", factors=(*factors,))


def factors_frame(found: TimeToEqual) -> pd.DataFrame:
    """Return the factors as a table."""
    columns = ["curve", "reaches", "dense cost", "cost", "factor", "bound"]
    rows = [(f.name, f.level, f.dense_cost, f.cost, f.value, f.bound) for f in found.factors]
    return pd.DataFrame(rows, columns=columns)


def draw_time_to_equal(found: TimeToEqual, ax: style.Axes) -> None:
    """Draw curves against cost, and at every level an arrow from dense to the other's cost."""
    colours: dict[str, str] = {}
    for name, rows, shape, colours[name] in curve_looks(found):
        look: dict[str, Any] = {"color": colours[name], "label": style.arrow(name)}
        ax.plot(rows["x"], rows["value"], shape, **look)
    lower = metric_kind(found.metric).sign >= 0
    best = (min if lower else max)([factor.level for factor in found.factors], default=0.0)
    for factor in found.factors:
        below = (factor.level == best) == lower  # the best one's name is on the side of no curve
        at = (factor.cost, factor.level), (factor.dense_cost, factor.level)
        colour = colours[factor.name]
        ends = {"arrowstyle": "-|>", "color": colour, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 2}
        ax.annotate("", *at, arrowprops=ends)
        middle = (factor.cost * factor.dense_cost) ** 0.5, factor.level
        text = f"{BOUNDS[factor.bound]}{factor.value:.2g}\N{MULTIPLICATION SIGN}"
        look = {"xytext": (0, -2.5 if below else 2.5), "textcoords": "offset points"}
        look |= {"ha": "center", "va": "top" if below else "bottom", "color": colour}
        ax.annotate(text, middle, fontsize=6.5, **look)
    style.cost_axis(ax, found.rows["x"])
    ax.set_xlabel(found.cost)
    style.value_axis(ax.yaxis, found.metric, found.rows["value"])
    style.legend(ax)


def _factors(found: Curves) -> tuple[Factor, ...]:
    """Return factors at the best value that both reached: the worse of the two curves' bests.

    Of several dense curves none is the baseline of every route, and there are no factors.
    """
    sign = 1 if lower_is_better(found.metric) else -1
    lower = found.rows.assign(value=sign * found.rows["value"])  # lower is better here
    curves = {name: rows for name, rows in lower.groupby("curve", sort=False) if len(rows) > 1}
    several = [name for name, rows in curves.items() if rows["dense"].all()]
    if len(several) != 1:
        return ()
    dense = curves.pop(several[0])
    factors = []
    for name, other in curves.items():
        level = float(max(dense["value"].min(), other["value"].min()))
        ours, theirs = (cost_to_reach(rows, level) for rows in (dense, other))
        firsts = (rows.sort_values("x")["value"].iloc[0] for rows in (dense, other))
        bounds = (bound for first, bound in zip(firsts, ("at most", "at least")) if first < level)
        factors.append(Factor(str(name), sign * level, ours, theirs, next(bounds, "")))
    return tuple(factors)


def caption(found: TimeToEqual) -> str:
    """Return the time-to-equal factors and their definition."""
    if not found.factors:
        if found.rows.loc[found.rows["dense"], "curve"].nunique() > 1:
            return "There are several dense curves, and none is that of every route."
        return f"A factor takes a dense curve and two seeds or more.{found.warning}"
    factors = "; ".join(_factor_text(factor, found.unit) for factor in found.factors)
    return FACTORS.format(factors=factors, cost=found.cost) + found.warning


def _factor_text(factor: Factor, unit: str) -> str:
    ours, theirs = (quantity(cost, unit) for cost in (factor.cost, factor.dense_cost))
    text = REACHES[factor.bound].format(ours=ours, theirs=theirs)
    interval = f" ({factor.low:.2g} to {factor.high:.2g}, 95% over seeds)"
    interval = interval if np.isfinite(factor.low) else ""
    name, level = routed(factor.name), number(factor.level)
    return f"{name} reaches {level} after {text} {factor.value:.2g}{interval}"


def times_to_equal(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the time to equal quality, beside the published one."""
    frame = records.training
    for metric in training_metrics(frame):
        ours = time_to_equal(frame, metric, cost=TRAIN_FLOPS)
        dense = ours.rows["dense"]
        if dense.any() and not dense.all():
            height = max(2.4, style.legend_height(len(ours.curves)))
            fig, (left, right) = style.figure(width=style.PAGE, height=height, columns=2)
            draw_time_to_equal(ours, left)
            stages = "one run a curve" if STEP in frame else "runs of growing length"
            left.set_title(records.title(stages))
            draw_time_to_equal(published_time_to_equal(), right)
            right.set_title("DiT-XL/2, ImageNet-256 (published)")
            yield Drawn(named("time_to_equal", metric), caption(ours), fig)
