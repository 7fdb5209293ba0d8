"""Every placed route of a sweep with its difference to the dense baseline, one row per cell."""

# K placements

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.sentences import ARROW, metric_text, outcomes, outcomes_text, span
from tread_lab.analysis.tables import published
from tread_lab.frames import (
    HIGH,
    LOW,
    NO_RESULT,
    cells_frame,
    delta_column,
    intervals_over,
    require_metric,
    with_delta,
)
from tread_lab.records.metric_names import metric_kind
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import value_text

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
PLACE_AXES = ("start", "end", "route", "routes")


@dataclass(frozen=True)
class Placements:
    """Routes with their difference to the dense baseline; every array is [K].

    Attributes:
        metric: what the values are; a difference, so the baseline is 0.
        start, end: of each route, both inclusive.
        value, low, high: the difference and its interval; NaN where there is none.
        states: `completed`, or why there is no number.
        measured_as: what the intervals are over; empty where there are none.
    """

    metric: str
    start: Ints
    end: Ints
    value: Array
    low: Array
    high: Array
    states: NDArray[np.str_]
    measured_as: str = ""

    @property
    def routes(self) -> list[tuple[int, int]]:
        """(start, end) of each."""
        return list(zip(self.start.tolist(), self.end.tolist()))

    @property
    def length(self) -> Ints:
        """Blocks skipped, j - i + 1."""
        return self.end - self.start + 1

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which placements have a number."""
        return np.isfinite(self.value)

    @property
    def best(self) -> int | None:
        """The index of the best value; `None` also where no value of the metric is better."""
        sign = metric_kind(self.metric).sign
        return int(np.nanargmin(sign * self.value)) if sign and self.measured.any() else None

    @property
    def outcomes(self) -> dict[str, int]:
        """How many routes are better or worse than dense by their intervals, or neither."""
        return outcomes(self.low, self.high, metric_kind(self.metric).sign)

    @property
    def best_is(self) -> str:
        """What the best route is called where it stands out."""
        return "least harmful" if [*self.outcomes] == ["worse"] else "best"

    def take(self, rows: NDArray[np.bool_] | Ints) -> Placements:
        """Return some placements, chosen by a mask or put in the order of indices."""
        arrays = ("start", "end", "value", "low", "high", "states")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})


def placements(frame: pd.DataFrame, metric: str) -> Placements:
    """Return the cells with exactly one route, from the rows of `trials_frame`.

    The value is the difference to the baseline of the same seed, averaged over seeds, and is there
    **only if every seed of the cell completed**. A finished cell without the metric has the state
    `unmeasured`.

    Raises:
        UserError: no such metric, or two cells share a route; `panels` splits a frame first.
    """
    require_metric(frame, metric)
    column = delta_column(metric)
    trials = with_delta(frame, metric)
    trials = trials[(trials["role"] == "trial") & (trials["route"] != "dense")]
    trials = trials[~trials["route"].str.contains("+", regex=False)]
    cells = cells_frame(trials.drop_duplicates(["run", "baseline"]))
    shared = cells[cells.duplicated("route")]
    if len(shared):
        where = " and ".join(cells.loc[cells["route"] == shared["route"].iloc[0], "cell"][:2])
        raise UserError(f"one route stands in several cells ({where}); choose one of them first")
    value, low, high, states = numbers_of(cells, column)
    return Placements(
        column,
        cells["start"].to_numpy(np.int64),
        cells["end"].to_numpy(np.int64),
        value,
        low,
        high,
        states,
        measured_as(cells, column),
    )


def numbers_of(cells: pd.DataFrame, column: str) -> tuple[Array, Array, Array, NDArray[np.str_]]:
    """Return value, low, high and state of each row of `cells_frame`.

    The numbers are there only if every seed completed; the state is `completed`, or why they lack.
    """
    done = (cells["state"] == "completed") & cells[column].notna()
    value, low, high = (
        cells[name].where(done).to_numpy(float) for name in (column, column + LOW, column + HIGH)
    )
    return value, low, high, states_without_numbers(cells).mask(done, "completed").to_numpy(np.str_)


def published_placements() -> Placements:
    """Return Fig. 8 in its own order (see `published.FIG8`): another model, data and metric."""
    start, end = np.array(list(published.FIG8)).T
    value = np.array(list(published.FIG8.values()))
    none = np.full(len(value), np.nan)
    return Placements(
        "delta/FID", start, end, value, none, none, np.full(len(value), "completed", np.str_)
    )


def best_route(places: Placements) -> str:
    """Return the best route and how many routes can be distinguished from the baseline."""
    metric = metric_text(places.metric)
    if not places.measured.any():
        return "No route has a number yet."
    if places.best is None:
        return f"{metric} is no measure of quality: no route is best by it."
    (start, end), k = places.routes[places.best], places.best
    interval = span(places.value[k], places.low[k], places.high[k], places.measured_as)
    first = f"{places.best_is.capitalize()} is {start}{ARROW}{end}: {metric} {interval}."
    if not np.isfinite(places.low).any():
        return f"{first} No intervals: one seed, and this metric is not paired image by image."
    return f"{first} {outcomes_text(places.outcomes, 'routes', places.measured_as)}"


def states_without_numbers(cells: pd.DataFrame) -> pd.Series[str]:
    """Return why a row of `cells_frame` would have no number: its state, unless it completed.

    A completed one is `uncompared` where its baseline ended without a result, else `unmeasured`.
    """
    alone = cells["reason"].isin(NO_RESULT.values())
    finished = pd.Series("unmeasured", index=cells.index).mask(alone, "uncompared")
    return cells["state"].where(cells["state"] != "completed", finished)


def endings_of(cells: pd.DataFrame, name: str) -> dict[str, tuple[str, ...]]:
    """Return why rows of `cells_frame` have no number -> their values of the column `name`."""
    groups = cells.groupby(states_without_numbers(cells))
    return {str(state): tuple(rows[name]) for state, rows in groups}


def panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return `frame` split by every axis but the route's: (`rate=0.5`, rows with their baselines).

    A sweep over routes alone is one panel without a name.
    """
    trials = frame[frame["role"] == "trial"]
    axes = [axis for axis in other_axes(frame) if trials[axis].nunique(dropna=False) > 1]
    if not axes:
        return [("", frame)]
    parts = []
    for values, part in trials.groupby(axes, sort=False, dropna=False):
        written = pd.Series(list(values), index=axes, dtype=object).dropna().items()
        settings = [f"{axis}={value_text(value)}" for axis, value in written]
        name = " ".join(settings) or "as the experiment is"
        rows = frame["run"].isin(part["baseline"]) & (frame["role"] == "baseline")
        parts.append((name, frame[rows | frame.index.isin(part.index)]))
    return parts


def other_axes(frame: pd.DataFrame) -> list[str]:
    """Return the axes of the sweep that are not the route's."""
    return [axis for axis in frame.attrs.get("axes", ()) if axis not in PLACE_AXES]


def commonest(values: Ints) -> int:
    """Return the value met most often, the smallest of equals; 0 where there is none."""
    distinct, counts = np.unique(values, return_counts=True)
    return int(distinct[counts.argmax()]) if len(distinct) else 0


def measured_as(cells: pd.DataFrame, metric: str) -> str:
    """Return what the intervals of these rows of `cells_frame` are over: `95% over 3 seeds`.

    The text is empty where there are no intervals.
    """
    over = sorted(set(intervals_over(cells, metric)) - {""})
    return f"95% over {' or '.join(over)}" if over else ""


def rank_correlation(x: Array | Ints, y: Array) -> float:
    """Return Spearman's correlation; NaN below three points or without spread."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    from scipy.stats import spearmanr  # few figures ask for it, and its import takes a second

    return float(spearmanr(x, y).statistic)


def chance_of_order(x: Array, y: Array) -> float:
    """Return p of Spearman's correlation: from all orders of up to seven points, else of t, which
    is 0 for equal orders, where two of all orders are as far apart as theirs."""
    from scipy.stats import rankdata, spearmanr

    if len(x) > 7:
        return max(float(spearmanr(x, y).pvalue), 2 / math.factorial(len(x)))
    centred, other = (rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    agreement = np.abs(np.array([*itertools.permutations(centred)]) @ other)  # the first is theirs
    return float((agreement > agreement[0] - 1e-9).mean())
