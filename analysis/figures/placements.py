"""Every placed route of a sweep with its difference to the dense baseline, one row per cell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.points import NUMBERS, Array, Points, bare_rows, cell_points
from tread_lab.analysis.tables import published
from tread_lab.frames import (
    ARROW,
    cells_frame,
    delta_column,
    interval_text,
    other_axes,
    outcomes,
    outcomes_text,
    require_metric,
    with_delta,
)
from tread_lab.records.metric_names import metric_kind, metric_label
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import value_text

FEWEST = 5  # points; the order of fewer agrees by chance too often for a p or a claim


def placements(frame: pd.DataFrame, metric: str) -> Points:
    """Return the cells with exactly one route, from the rows of `trials_frame`.

    The value is the difference to the baseline of the same seed, averaged over seeds, and is there
    **only if every seed of the cell completed**. A row has `start` and `end`, both inclusive.

    Raises:
        UserError: no such metric, or two cells share a route; `panels` splits a frame first.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    trials = trials[(trials["role"] == "trial") & (trials["route"] != "dense")]
    trials = trials[~trials["route"].str.contains("+", regex=False)]
    cells = cells_frame(trials.drop_duplicates(["run", "baseline"]))
    shared = cells[cells.duplicated("route")]
    if len(shared):
        where = " and ".join(cells.loc[cells["route"] == shared["route"].iloc[0], "cell"][:2])
        raise UserError(f"one route stands in several cells ({where}); choose one of them first")
    ends = {name: cells[name].astype(int) for name in ("start", "end")}
    return cell_points(cells.assign(**ends), delta_column(metric))


def controls(frame: pd.DataFrame, metric: str) -> Points:
    """Return the controls of the baselines, with their differences to these as `placements`."""
    own = with_delta(frame, metric)
    return cell_points(cells_frame(own[own["role"] == "control"]), delta_column(metric))


def published_placements() -> Points:
    """Return Fig. 8 in its own order (see `published.FIG8`): another model, data and metric."""
    start, end = zip(*published.FIG8)
    return Points("delta/FID", bare_rows(start=start, end=end, value=[*published.FIG8.values()]))


def routes(places: Points) -> list[tuple[int, int]]:
    """Return (start, end) of each placement."""
    return list(zip(places.rows["start"], places.rows["end"]))


def best_route(places: Points) -> str:
    """Return the best route and how many routes can be distinguished from the baseline."""
    metric, rows = metric_label(places.metric), places.rows
    if places.measured.empty:
        return "No route has a number yet."
    if places.best is None:
        return f"{metric} is no measure of quality: no route is best by it."
    best = rows.loc[places.best]
    counts = outcomes(rows["low"], rows["high"], metric_kind(places.metric).sign)
    called = "Least harmful" if [*counts] == ["worse"] else "Best"
    interval = interval_text(places.metric, *best[NUMBERS], over=places.measured_as)
    first = f"{called} is {best['start']}{ARROW}{best['end']}: {metric} {interval}."
    if not counts:
        return f"{first} No intervals: one seed, and this metric is not paired image by image."
    return f"{first} {outcomes_text(counts, 'routes', places.measured_as)}"


def control_texts(points: Points) -> Iterator[str]:
    """Yield what each control reaches without a route."""
    for _, row in points.measured.iterrows():
        interval = interval_text(points.metric, *row[NUMBERS], over=points.measured_as)
        yield f"The {row['name']}, dense: {metric_label(points.metric)} {interval}."


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
        rows |= frame["baseline"].isin(part["baseline"]) & (frame["role"] == "control")
        parts.append((name, frame[rows | frame.index.isin(part.index)]))
    return parts


def commonest(values: pd.Series[int]) -> int:
    """Return the value met most often, the smallest of equals; 0 where there is none."""
    return next(iter(values.mode()), 0)


def rank_correlation(x: Collection[float], y: Collection[float]) -> float:
    """Return Spearman's correlation; NaN below three points or without spread."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    from scipy.stats import spearmanr  # few figures ask for it, and its import takes a second

    return float(spearmanr(x, y).statistic)


def chance_of_order(x: Array, y: Array) -> float:
    """Return p of Spearman's correlation, as if points were independent; NaN below five points.

    It is from all orders of up to seven points, else of t, which is 0 for equal orders, where two
    of all orders are as far apart as theirs.
    """
    if len(x) < FEWEST:
        return float("nan")
    from scipy.stats import rankdata, spearmanr

    if len(x) > 7:
        return max(float(spearmanr(x, y).pvalue), 2 / math.factorial(len(x)))
    centred, other = (rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    agreement = np.abs(np.array([*itertools.permutations(centred)]) @ other)  # the first is theirs
    return float((agreement > agreement[0] - 1e-9).mean())


def trend(
    correlation: float,
    chance: float,
    positive: str,
    negative: str = "the opposite of the paper's trend",
) -> str:
    """Return what a rank correlation shows; nothing from -0.5 to 0.5, or where p is 0.05 or more.

    Args:
        chance: its p, NaN where too few points have one.
    """
    if not chance < 0.05 or abs(correlation) <= 0.5:
        return "no clear trend"
    return positive if correlation > 0 else negative
