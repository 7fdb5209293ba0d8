"""Differences to dense in rows: of all cells of a sweep; effects of an axis and of routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named, sample_metrics
from tread_lab.analysis.figures.placements import numbers_of, other_axes
from tread_lab.analysis.figures.sentences import metric_text, result, routed
from tread_lab.compare.intervals import t_interval
from tread_lab.frames import cells_frame, delta_column, require_metric, with_delta
from tread_lab.specs.labels import without_axis

Seeds = Mapping[int, float]  # seed -> value of the metric


@dataclass(frozen=True)
class Effect:
    """One difference, paired by seed, with its 95% interval over seeds.

    Attributes:
        kind: `axis` (two values of the axis, both dense), `route` (a route less dense, at one
            value), or `interaction` (the route's effect at one value less that at the first).
        name: what is subtracted from what.
    """

    kind: str
    name: str
    value: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class TwoWays:
    """The effects of an axis and of the routes on a metric."""

    metric: str
    axis: str
    effects: tuple[Effect, ...]

    def largest(self, kind: str) -> Effect | None:
        """Return the effect of a kind that is furthest from 0."""
        effects = (effect for effect in self.effects if effect.kind == kind)
        return max(effects, key=lambda effect: abs(effect.value), default=None)


def crossed_axis(frame: pd.DataFrame) -> str | None:
    """Return the one axis beside the route whose values have one dense baseline in each seed."""
    trials = frame[frame["role"] == "trial"]
    axes = [axis for axis in other_axes(frame) if trials[axis].nunique() > 1]
    if len(axes) != 1 or trials["baseline"].isna().any():
        return None
    owners = trials.groupby("baseline")[axes[0]].nunique()
    baselines = trials.groupby([axes[0], "seed"])["baseline"].nunique()
    return str(axes[0]) if (owners == 1).all() and (baselines == 1).all() else None


def two_ways(frame: pd.DataFrame, metric: str) -> TwoWays | None:
    """Return the effects that two or more seeds show, from rows of `trials_frame`; `None` if none.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    axis = crossed_axis(frame)
    if axis is None:
        return None
    values = frame.drop_duplicates("run").set_index("run")[metric]
    trials = frame[frame["role"] == "trial"]
    settings = trials["cell"].map(lambda cell: without_axis(cell, axis))
    trials = trials.assign(dense=trials["baseline"].map(values), setting=settings)
    dense: dict[str, Seeds] = {}
    gains: dict[str, dict[str, Seeds]] = {}
    for value, rows in trials.groupby(axis, sort=False):
        dense[str(value)] = _by_seed(rows.drop_duplicates("seed"), "dense")
        for setting, own in rows.groupby("setting", sort=False):
            gain = own.assign(gain=own[metric] - own["dense"])
            gains.setdefault(str(setting), {})[str(value)] = _by_seed(gain, "gain")
    effects = tuple(_effects(dense, gains))
    return TwoWays(metric, axis, effects) if effects else None


def _by_seed(rows: pd.DataFrame, column: str) -> Seeds:
    numbers = zip(rows["seed"].tolist(), rows[column].tolist())
    return {int(seed): float(value) for seed, value in numbers if np.isfinite(value)}


def _effects(
    dense: Mapping[str, Seeds], gains: Mapping[str, Mapping[str, Seeds]]
) -> Iterator[Effect]:
    """Give the effects of the axis, then of the routes, then their interactions."""
    first, *others = dense
    for other in others:
        yield from _effect(
            "axis", f"{other} {style.MINUS} {first}, dense", dense[other], dense[first]
        )

    for setting, at in gains.items():
        for value, gain in at.items():
            name = f"{routed(setting)} {style.MINUS} dense, {value}"
            yield from _effect("route", name, gain, dict.fromkeys(gain, 0.0))

    for setting, at in gains.items():
        first, *others = at
        for other in others:
            name = f"{routed(setting)}: {other} {style.MINUS} {first}"
            yield from _effect("interaction", name, at[other], at[first])


def _effect(kind: str, name: str, of: Seeds, less: Seeds) -> Iterator[Effect]:
    """Yield the paired difference over the seeds that both have; nothing below two."""
    differences = np.array([of[seed] - less[seed] for seed in of if seed in less])
    if len(differences) > 1:
        yield Effect(kind, name, *t_interval(differences), len(differences))


def draw_two_ways(ways: TwoWays, ax: style.Axes) -> None:
    """Draw a dot with its interval for each effect; it is hollow where the interval holds zero."""
    low, high, value = (
        np.array([getattr(effect, name) for effect in ways.effects])
        for name in ("low", "high", "value")
    )
    names = [effect.name for effect in ways.effects]
    style.draw_difference_rows(ax, f"delta/{ways.metric}", names, value, low, high)
    kinds = [effect.kind for effect in ways.effects]
    for k in range(1, len(kinds)):
        if kinds[k] != kinds[k - 1]:
            ax.axhline(0.5 - k, color=style.GREY, linewidth=0.5)


def caption(ways: TwoWays) -> str:
    """Return what the figure shows, with the largest effect of each kind."""
    counts = sorted({effect.seeds for effect in ways.effects})
    over = "-".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    parts = [
        f"Differences of {metric_text(ways.metric)}, paired by seed, with 95% intervals over {over}"
        f" seeds: of {ways.axis} between dense runs, of a route at each {ways.axis}, and of the"
        " latter among each other; a dot is hollow where the interval holds zero."
    ]
    meanings = {"axis": ways.axis, "route": "a route", "interaction": "the one on the other"}
    for kind, meaning in meanings.items():
        effect = ways.largest(kind)
        if effect is not None:
            size = result(f"delta/{ways.metric}", effect.value, effect.low, effect.high)
            parts.append(f"Largest effect of {meaning}: {size} ({effect.name}).")
    return " ".join(parts)


def cell_gaps(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return every cell in plan order with its difference to the baseline, averaged over seeds.

    Columns: name, value, low and high of the difference (NaN where there is none), and state.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    cells = cells_frame(trials[trials["role"] == "trial"])
    numbers = dict(zip(("value", "low", "high", "state"), numbers_of(cells, delta_column(metric))))
    return pd.DataFrame({"name": cells["cell"], **numbers})


def draw_cell_gaps(gaps: pd.DataFrame, metric: str, ax: style.Axes) -> None:
    """Draw a dot with its interval for each cell; one without a number says why."""
    names = [style.arrow(name) for name in gaps["name"]]
    values = (gaps[column].to_numpy(float) for column in ("value", "low", "high"))
    style.draw_difference_rows(ax, delta_column(metric), names, *values)
    for k in np.flatnonzero(gaps["value"].isna()).tolist():
        look = style.STATE_LOOKS[gaps["state"].iloc[k]]
        ax.text(0, -k, f" {look.letter} {look.text}", color=style.GREY, va="center")


@figure_kind(compares=True)
def cells(records: SweepRecords) -> Iterator[Drawn]:
    """All cells of the sweep"""
    for metric in records.compared:
        gaps = cell_gaps(records.frame, metric)
        if gaps["value"].notna().sum() > 1:
            lines = sum(style.arrow(name).count("\n") + 1 for name in gaps["name"])
            fig, (ax,) = style.figure(width=style.PAGE, height=0.8 + 0.16 * lines)
            draw_cell_gaps(gaps, metric, ax)
            caption = "Every cell of the sweep; a dot is hollow where its 95% interval holds zero."
            yield Drawn(named("cells", metric), caption, fig, metric)


@figure_kind(compares=True)
def ways(records: SweepRecords) -> Iterator[Drawn]:
    """How much is the route, and how much the other axis?"""
    for metric in sample_metrics(records.frame):
        ways = two_ways(records.frame, metric)
        if ways is not None:
            height = 1.0 + 0.2 * len(ways.effects)
            fig, axes = style.figure(width=style.PAGE, height=height)
            draw_two_ways(ways, axes[0])
            yield Drawn(named("two_ways", metric), caption(ways), fig, metric)
