"""A metric along an axis: selection rate (Table 5), training (Fig. S9), time to equal quality."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis import paper_tables
from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import (
    NUMBERS,
    Drawn,
    Points,
    SweepRecords,
    bare_rows,
    cell_points,
    named,
    quality_metrics,
)
from tread_lab.config.errors import UserError, suggest
from tread_lab.config.labels import without_axis
from tread_lab.config.sweep import SPEND, STEPS
from tread_lab.config.units import quantity
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_IMAGES,
    delta_column,
    lower_is_better,
    metric_kind,
    metric_label,
    value_text,
)
from tread_lab.results import (
    STEP,
    cells_frame,
    interval_text,
    joined,
    number,
    require_metric,
    routed,
    with_delta,
)
from tread_lab.results.intervals import t_interval

RATE = "rate"
STEPS_AXIS, HOURS_AXIS = "training steps", "device-hours"
COSTS = {TRAIN_IMAGES: "training images", DEVICE_HOURS: HOURS_AXIS}
FALLING = (
    " The learning rate decays to the end ({}), so an earlier step does not equal a shorter run."
)


@dataclass(frozen=True)
class Curves(Points):
    """Points on curves, baselines first, from left to right.

    Further columns: `curve`, its name (`dense`, or the route with its rate and other fixed
    settings); `dense`, whether its points are baselines; `x`, the value of the axis.

    Attributes:
        warning: why intermediate checkpoints do not equal shorter runs; empty if they do.
    """

    warning: str = ""

    @property
    def curves(self) -> dict[str, pd.DataFrame]:
        """The rows of each curve by its name."""
        return {str(name): rows for name, rows in self.rows.groupby("curve", sort=False)}


def curves(frame: pd.DataFrame, metric: str, axis: str) -> Curves:
    """Return `metric` along the numeric column `axis`, from the rows of `trials_frame`.

    A curve joins cells that differ in `axis` only (over training steps, also in `spend`). A cell
    has a number only if all its seeds completed.

    Raises:
        UserError: unknown metric, or no numeric axis of that name.
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
    cells["state"] = [ended.get(name, state) for name, state in zip(names, cells["state"])]
    found = cell_points(cells.assign(curve=names, x=cells[axis].astype(float))[placed], metric)
    dense = (found.rows["role"] == "baseline").groupby(found.rows["curve"]).transform("all")
    order = np.lexsort((found.rows["x"], pd.factorize(found.rows["curve"])[0], ~dense))
    falling = ", ".join(frame.attrs.get("schedules", ())) if axis == STEP else ""
    warning = FALLING.format(falling) if falling else ""
    return Curves(metric, found.rows.assign(dense=dense).iloc[order], found.measured_as, warning)


def curve_looks(found: Curves) -> Iterator[tuple[str, pd.DataFrame, str, str]]:
    """Yield the name, rows, format and colour of each curve."""
    dense = sum(bool(rows["dense"].all()) for rows in found.curves.values())
    for k, (name, rows) in enumerate(found.curves.items()):
        yield name, rows, *style.curve_look(k - dense, dense=k < dense)


def draw_curves(found: Curves, ax: style.Axes, *, legend: bool = True) -> None:
    """Draw dense curves black and dashed, others in colour; letters mark cells without a number."""
    for name, rows, shape, colour in curve_looks(found):
        known = rows[rows["value"].notna()]
        look: dict[str, Any] = {"fmt": shape, "color": colour, "label": style.arrow(name)}
        ax.errorbar(known["x"], known["value"], style.bars(known), **look)
    missing = found.rows[found.rows["value"].isna()]
    for x, state in zip(missing["x"], missing["state"]):
        style.mark_state(ax, x, state)
    style.value_axis(ax.yaxis, found.metric, found.rows[NUMBERS])
    if legend:
        handles, _ = ax.get_legend_handles_labels()
        style.legend(ax, [*handles, *style.state_legend(missing["state"])])


def rates(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Curves:
    """Return one curve for every route (and other axis) with at least two rates.

    Rates are 0 <= s < 1; s = 0 is the baseline, whose difference is 0.

    Raises:
        UserError: unknown metric.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    found = curves(trials[trials["role"] == "trial"], delta_column(metric), RATE)
    several = found.rows[found.rows.groupby("curve")["x"].transform("nunique") > 1]
    dense = several.drop_duplicates("curve").assign(x=0.0, value=0.0, state="completed")
    dense[["low", "high"]] = np.nan
    return replace(found, rows=pd.concat([dense, several], ignore_index=True))


def published_rates() -> Curves:
    """Return Table 5: FID-50K of DiT-B/2 minus its dense run's."""
    table = paper_tables.table("Table 5")
    rate, fid = (table[c].to_numpy(float) for c in ("selection_rate", "fid"))
    rows = bare_rows(curve="2->8", dense=False, x=rate, value=fid - fid[0])
    return Curves("delta/FID", rows)


def best_rate(found: Curves) -> pd.Series[Any] | None:
    """Return the best point, the baseline's own zero included.

    `None` if no rate has a number, or the metric has no better direction.
    """
    measured = (found.measured["x"] > 0).any() and found.best is not None
    return found.rows.loc[found.best] if measured else None


def draw_rates(found: Curves, ax: style.Axes) -> None:
    """Draw one line per route; letters on the axis mark cells without a number."""
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    missing = len(found.measured) < len(found.rows)
    draw_curves(found, ax, legend=missing or len(found.curves) > 1)
    ax.set_xlabel("selection rate $s$, share of tokens routed")
    ax.set_xlim(-0.05, 1.0)


def rates_caption(found: Curves) -> str:
    """Return the best rate and its route."""
    best, metric = best_rate(found), metric_label(found.metric)
    if best is None:
        return "No rate has a number yet."
    if best["x"] == 0:
        return f"No rate has a better mean than dense training ({metric})."
    interval = interval_text(found.metric, *best[NUMBERS], over=found.measured_as)
    return f"Best is s = {best['x']:g} on {routed(best['curve'])}: {metric} {interval}."


def selection_rates(records: SweepRecords) -> Iterator[Drawn]:
    """Draw a metric against the selection rate, beside the published values."""
    for metric in records.compared:
        found = rates(records.frame, metric)
        if best_rate(found) is not None:
            height = style.legend_height(len(found.curves))
            fig, (ours, theirs) = style.figure(width=style.PAGE, height=height, columns=2)
            draw_rates(found, ours)
            ours.set_title(records.title(found.measured_as))
            draw_rates(published_rates(), theirs)
            theirs.set_title(paper_tables.TABLE5_TITLE)
            yield Drawn(named("selection_rate", metric), rates_caption(found), fig)


def over_training(frame: pd.DataFrame, metric: str) -> dict[str, Curves]:
    """Return curves of a metric over training steps and over each recorded cost.

    Raises:
        UserError: unknown metric, or only one step of training.
    """
    rows = frame[frame["role"] == "trial"] if metric.startswith("gap/") else frame
    rows.attrs |= frame.attrs
    found = curves(rows, metric, training_axis(frame))
    panels = {STEPS_AXIS: found}
    for cost in (cost for cost in COSTS if cost in rows):
        spent = found.rows[cost].where(found.rows["value"].notna())
        panels[COSTS[cost]] = replace(found, rows=found.rows.assign(x=spent))
    return panels


def training_axis(frame: pd.DataFrame) -> str:
    """Return the column of training steps: of checkpoints, or of runs of several lengths."""
    return STEP if STEP in frame else STEPS


def training_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the gap and the quality metrics of a sweep measured at several training steps."""
    axis = training_axis(frame)
    settings = [a for a in frame.attrs.get("axes", ()) if a in frame and a not in (axis, SPEND)]
    trials = frame[frame["role"] == "trial"]
    groups = trials.groupby(settings or ["role"], dropna=False)
    if axis not in frame or not (groups[axis].nunique() > 1).any():
        return []  # a length that matching gives each cell is no curve
    gap = [GAP_HELDOUT] if GAP_HELDOUT in frame and frame[GAP_HELDOUT].notna().any() else []
    return list(dict.fromkeys([*gap, *quality_metrics(frame)]))


def draw_over_training(found: Curves, ax: style.Axes, *, over: str, legend: bool = True) -> None:
    """Draw curves; for a gap, a line at 0 is the baseline."""
    known = found.rows.groupby("curve")["x"].transform("count") > 0
    draw_curves(replace(found, rows=found.rows[known]), ax, legend=legend)
    if found.metric.startswith("gap/"):
        ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    ax.locator_params(axis="x", nbins=4)
    ax.set_xlabel(over)


def training_caption(panels: Mapping[str, Curves]) -> str:
    """Return the last value and cost of every curve, and the unit of the intervals."""
    found = panels[STEPS_AXIS]
    hours = panels[HOURS_AXIS].rows["x"] if HOURS_AXIS in panels else pd.Series(dtype=float)
    ends = []
    for k, end in found.measured.drop_duplicates("curve", keep="last").iterrows():
        price = value_text(DEVICE_HOURS, hours.get(k, np.nan))
        at = f"{value_text(found.metric, *end[NUMBERS])} at {end['x']:.0f} steps"
        ends.append(f"{routed(end['curve'])} {at}{f' ({price})' if price else ''}")
    over = f" Intervals: {found.measured_as}." if found.measured_as else ""
    return f"Last of each curve: {'; '.join(ends)}.{over}{found.warning}"


def growths(records: SweepRecords) -> Iterator[Drawn]:
    """Draw quality over training: over steps, images and device-hours."""
    busy = records.frame.loc[records.frame["disturbed"], "cell"].unique()
    note = f" Other work on the machine disturbed the hours of {joined(busy)}." if len(busy) else ""
    for metric in training_metrics(records.training):
        panels = over_training(records.training, metric)
        if panels[STEPS_AXIS].measured.empty:
            continue
        several = len(panels) > 1
        height = style.legend_height(len(panels[STEPS_AXIS].curves))
        width = style.PAGE if several else style.COLUMN
        fig, axes = style.figure(width=width, height=height, columns=len(panels))
        for (over, panel), ax in zip(panels.items(), axes):
            draw_over_training(panel, ax, over=over, legend=ax is axes[0])
            ax.set_ylabel(ax.get_ylabel() if ax is axes[0] else "")
        text = training_caption(panels) + (note if several else "")
        yield Drawn(named("over_training", metric), text, fig)


FACTORS = (
    "{factors}. A factor is the cost ({cost}) at which dense reaches a value, divided by the"
    " other curve's cost, at the best value that both reach."
)


@dataclass(frozen=True)
class Factor:
    """One speed-up: cost at which dense training reaches `level`, over the other curve's.

    Attributes:
        low, high: 95% interval over seeds, from the log factors; NaN for one seed.
    """

    name: str
    level: float
    dense_cost: float
    cost: float
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
    """Return the least cost at which a curve falls to `level`; NaN if it never does, or is as low
    at its first point.

    Between points the value is interpolated linearly in the logarithm of the cost.
    """
    curve = curve.sort_values("x")
    x, y = np.log(curve["x"].to_numpy(float)), curve["value"].to_numpy(float)
    k = int(np.argmax(y <= level))
    if k == 0:
        return float("nan")
    share = (y[k - 1] - level) / (y[k - 1] - y[k])
    return float(np.exp(x[k - 1] + share * (x[k] - x[k - 1])))


def time_to_equal(frame: pd.DataFrame, metric: str, *, cost: str) -> TimeToEqual:
    """Return curves over training, and factors at the best value that both curves reach.

    A factor requires two or more seeds: equal curves of one seed have factors from 0.67 to 1.5.

    A point is a stage of one run, or a run of its own length: rows of `SweepReader.training`.

    Raises:
        UserError: unknown metric, or only one step of training.
    """
    found = _against(frame, metric, cost)
    of_seeds: dict[str, list[float]] = {}
    for _, part in frame.groupby("seed"):
        for factor in _factors(_against(part, metric, cost)):
            of_seeds.setdefault(factor.name, []).append(np.log(factor.value))
    factors = []
    for factor in _factors(found):
        if len(logs := of_seeds.get(factor.name, [])) > 1:
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


def _against(frame: pd.DataFrame, metric: str, cost: str) -> Curves:
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


def draw_time_to_equal(found: TimeToEqual, ax: style.Axes) -> None:
    """Draw curves against cost, with an arrow from dense to the other curve for each factor."""
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
        text = f"{factor.value:.2g}\N{MULTIPLICATION SIGN}"
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
        factors.append(Factor(str(name), sign * level, ours, theirs))
    return tuple(factor for factor in factors if np.isfinite(factor.value))


def factors_caption(found: TimeToEqual) -> str:
    """Return the time-to-equal factors and their definition."""
    if not found.factors:
        if found.rows.loc[found.rows["dense"], "curve"].nunique() > 1:
            return "No factor: there are several dense curves."
        return (
            "A factor requires a dense curve, two seeds or more, and a value that both curves"
            " cross." + found.warning
        )
    factors = "; ".join(_text_of(factor, found.unit) for factor in found.factors)
    return FACTORS.format(factors=factors, cost=found.cost) + found.warning


def _text_of(factor: Factor, unit: str) -> str:
    ours, theirs = (quantity(cost, unit) for cost in (factor.cost, factor.dense_cost))
    interval = f" ({factor.low:.2g} to {factor.high:.2g}, 95% over seeds)"
    interval = interval if np.isfinite(factor.low) else ""
    name, level = routed(factor.name), number(factor.level)
    factor_text = f"a factor of {factor.value:.2g}{interval}"
    return f"{name} reaches {level} after {ours} instead of {theirs}: {factor_text}"


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
            stages = "one run per curve" if STEP in frame else "runs of growing length"
            left.set_title(records.title(stages))
            draw_time_to_equal(published_time_to_equal(), right)
            right.set_title("DiT-XL/2, ImageNet-256\n(published)")
            yield Drawn(named("time_to_equal", metric), factors_caption(ours), fig)
