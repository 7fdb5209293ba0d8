"""Readings: one or two sentences for each figure, made from its numbers and claiming no more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.gap_and_quality import GapAndQuality
from tread_lab.analysis.figures.guidance_costs import GuidanceCosts, GuidancePoint
from tread_lab.analysis.figures.loss_gap import GapByLength, GapOverSteps
from tread_lab.analysis.figures.over_training import OverTraining
from tread_lab.analysis.figures.pareto import Pareto
from tread_lab.analysis.figures.rates import Rates
from tread_lab.analysis.figures.route_bars import RouteBars, agreement
from tread_lab.analysis.figures.samples import SampleRows
from tread_lab.analysis.figures.similarity import Similarity, window_numbers
from tread_lab.analysis.figures.style import MINUS, label
from tread_lab.analysis.figures.time_to_equal import TimeToEqual
from tread_lab.records.metric_names import metric_kind

ARROW = "\N{RIGHTWARDS ARROW}"


def number(value: float, *, signed: bool = False) -> str:
    """Return three digits with a real minus sign."""
    text = f"{value:+.3g}" if signed else f"{value:.3g}"
    return text.replace("-", MINUS)


def span(value: float, low: float, high: float) -> str:
    """Return `+0.0023 (95% interval +0.0016 to +0.0030)`; the interval only where there is one."""
    text = number(value, signed=True)
    if not np.isfinite(low):
        return text
    return f"{text} (95% interval {number(low, signed=True)} to {number(high, signed=True)})"


def routed(name: str) -> str:
    """Return `2->8` with a real arrow."""
    return name.replace("->", ARROW)


def of_bars(bars: RouteBars) -> str:
    """Return the best route and how many routes can be distinguished from the baseline."""
    best = bars.best
    if best is None and any(np.isfinite(bar.value) for bar in bars.bars):
        return f"{_metric(bars.metric)} is no measure of quality: no route is best by it."
    if best is None:
        return "No route has a number yet."
    name = f"{best.route[0]}{ARROW}{best.route[1]}"
    lower = metric_kind(bars.metric).sign > 0
    first = f"Best is {name}: {_metric(bars.metric)} {span(best.value, best.low, best.high)}."
    measured = [bar for bar in bars.bars if np.isfinite(bar.low)]
    if not measured:
        return f"{first} No intervals: one seed, and this metric is not paired image by image."
    low = np.array([bar.low for bar in measured])
    high = np.array([bar.high for bar in measured])
    below, above = int((high < 0).sum()), int((low > 0).sum())
    better, worse = (below, above) if lower else (above, below)
    rest = len(measured) - better - worse
    outcomes = ((better, "better"), (worse, "worse"), (rest, "cannot be distinguished from it"))
    counts = ", ".join(f"{count} {outcome}" for count, outcome in outcomes if count)
    return f"{first} Compared with dense at 95%, of {len(measured)} routes: {counts}."


def of_agreement(bars: RouteBars) -> str:
    """Return whether the routes have the published order."""
    correlation, routes = agreement(bars)
    if not np.isfinite(correlation):
        return "Too few of the published routes have a number here to compare their order."
    trend = _trend(correlation, "the published order holds here too", "the opposite of it")
    return (
        f"Rank correlation with the published differences over {routes} common routes:"
        f" {number(correlation)}; {trend}."
    )


def of_gap_by_length(gaps: GapByLength) -> str:
    """Return whether longer routes have the larger gap."""
    if not np.isfinite(gaps.rank_correlation):
        return "Too few routes for a trend over their length."
    trend = _trend(gaps.rank_correlation, "longer routes have the larger gap")
    return (
        f"Rank correlation of length and gap over {len(gaps.value)} routes:"
        f" {number(gaps.rank_correlation)}; {trend}. The gap is that of the routed task, which is"
        " harder by construction; it is no measure of quality."
    )


def of_gap_over_steps(gaps: GapOverSteps) -> str:
    """Return the last gap of the shortest and of the longest route."""
    if not gaps.names:
        return "No two runs logged the same steps yet."
    first, last = gaps.gaps[0][-1], gaps.gaps[-1][-1]
    return (
        f"At step {gaps.steps[0][-1]} the shortest route ({routed(gaps.names[0])}) lies"
        f" {number(first, signed=True)} from the dense run's training loss, the longest"
        f" ({routed(gaps.names[-1])}) {number(last, signed=True)}. Runs of one seed share"
        " batches and noise, so differences are steadier than either curve."
    )


def of_gap_and_quality(found: GapAndQuality) -> str:
    """Return whether the loss gap predicts the quality of the samples."""
    if not np.isfinite(found.rank_correlation):
        return "Too few routes have both numbers."
    trend = _trend(found.rank_correlation, "a larger loss gap goes with worse samples")
    return (
        f"Rank correlation over {len(found.routes)} routes: {number(found.rank_correlation)};"
        f" {trend}."
    )


def of_similarity(dense: Similarity, other: Similarity) -> str:
    """Return the mean similarity inside and across a route's window, beside the dense model's."""
    route = other.routes[0]
    ours, theirs = window_numbers(other.mean, route), window_numbers(dense.mean, route)
    first = max(route[0] - 1, 0)
    return (
        f"Inside the window of route {route[0]}{ARROW}{route[1]} (outputs {first} to {route[1]})"
        f" the mean cosine is {number(ours.inside)}, in the dense model {number(theirs.inside)};"
        f" from the window to later blocks it is {number(ours.crossing)} against"
        f" {number(theirs.crossing)}."
    )


def of_pareto(points: Pareto) -> str:
    """Return the cells on the Pareto front, and whether the dense run is one of them."""
    order = np.argsort(points.cost)
    front = [k for k in order if points.front[k]]
    if not front:
        return "No cell has both numbers yet."
    dense = any(points.dense[k] for k in front)
    unit = "FLOPs relative to dense" if points.relative else "FLOPs"
    names = [f"{routed(points.names[k])} ({number(points.cost[k])})" for k in front[:6]]
    more = f" and {len(front) - 6} more" if len(front) > 6 else ""
    baseline = (
        "The dense run is one of them: no cheaper cell is as good."
        if dense
        else "The dense run is not: a cell that costs less is as good or better."
    )
    front_text = f"Pareto front, cheapest first ({unit}): {', '.join(names)}{more}."
    parts = [f"{front_text} No cell is both cheaper and better than one of these."]
    parts += [baseline] if points.dense.any() else []
    parts += [] if points.measured_as else ["No intervals: one seed."]
    return " ".join(parts)


def of_rates(found: Rates) -> str:
    """Return the best rate and its route."""
    if found.best is None:
        return "No two rates of one route have a number yet."
    name, rate = found.best
    curve = next(curve for curve in found.curves if curve.name == name)
    at = int(np.flatnonzero(curve.rate == rate)[0])
    if rate == 0:
        return f"No rate is better than dense training ({_metric(found.metric)} against it)."
    interval = span(curve.value[at], curve.low[at], curve.high[at])
    return f"Best is s = {rate:g} on {routed(name)}: {_metric(found.metric)} {interval}."


def of_over_training(found: OverTraining) -> str:
    """Return the last value of every curve, panel by panel."""
    sentences = []
    for title, panel in found.panels:
        ends = []
        for curve in panel.curves:
            measured = np.flatnonzero(np.isfinite(curve.value))
            if len(measured):
                step, value = curve.x[measured[-1]], curve.value[measured[-1]]
                ends.append(f"{routed(curve.name)} {number(value)} at {step:.0f} steps")
        sentences.append(f"{_plain(title) or 'at the end'}: {', '.join(ends)}" if ends else "")
    return "; ".join(filter(None, sentences)) + "."


def of_time_to_equal(found: TimeToEqual) -> str:
    """Return the time-to-equal factors and their definition."""
    if not found.factors:
        return "There is no dense curve to be as good as."
    sentences = []
    for factor in found.factors:
        if np.isfinite(factor.value):
            sentences.append(
                f"{routed(factor.name)} reaches {number(factor.level)} after"
                f" {number(factor.cost)} instead of {number(factor.dense_cost)}:"
                f" a factor of {factor.value:.2g}"
            )
        else:
            sentences.append(f"{routed(factor.name)} does not reach {number(factor.level)}")
    return (
        "; ".join(sentences)
        + f". A factor is the dense run's cost ({found.unit}) to reach a value over the other's,"
        " at the best value that both reached."
    )


def of_guidance(costs: GuidanceCosts) -> str:
    """Return the best guidance of every cell, and the cost of an image with and without it."""
    settings = []
    sign = metric_kind(costs.metric).sign
    if sign == 0:
        return f"{_metric(costs.metric)} is no measure of quality: no guidance is best by it."
    for cell in costs.cells:
        points = [point for point in costs.points if point.cell == cell]
        best = min(points, key=lambda point: sign * point.value)
        plain = next((point for point in points if point.method == "none"), None)
        beside = "" if plain is None else f", without guidance {_at_cost(plain)}"
        settings.append(f"{routed(cell)}: best is {best.setting} with {_at_cost(best)}{beside}")
    if not settings:
        return "No guidance has been measured with its cost yet."
    return f"{_metric(costs.metric)} and FLOPs an image. {'; '.join(settings)}."


def _at_cost(point: GuidancePoint) -> str:
    return f"{number(point.value)} at {number(point.flops)}"


def of_samples(rows: SampleRows) -> str:
    """Return the mean pixel difference between the images of every run and the first row's."""
    shown = [row for row in rows.rows if row.images is not None]
    if len(shown) < 2:
        return "Fewer than two runs have images yet."
    first = np.asarray(shown[0].images, dtype=float)
    away = [
        f"{routed(row.name)} {np.abs(np.asarray(row.images, dtype=float) - first).mean():.0f}"
        for row in shown[1:]
    ]
    return (
        f"Mean difference from {routed(shown[0].name)}, of 255 grey levels, over {len(first)}"
        f" images from equal noise and labels: {', '.join(away)}. It shows how far a network"
        " moved, not whether its images are better."
    )


def of_comparison(rows: pd.DataFrame, metric: str) -> str:
    """Return how many cells are better than dense, and the best one with its interval."""
    measured = rows[rows["difference"].notna() & ~rows["own"]]
    if measured.empty:
        return "No cell has both numbers yet."
    sign = metric_kind(metric).sign
    if sign == 0:
        return f"{_metric(metric)} is no measure of quality: no cell is better by it."
    better = int((sign * measured["difference"] < 0).sum())
    best = measured.iloc[int((sign * measured["difference"]).to_numpy().argmin())]
    interval = span(best["difference"], best["low"], best["high"])
    seeds = int(measured["seeds"].max())
    few = "" if seeds > 2 else f" {seeds} seed{'s' * (seeds > 1)}: a claim needs three."
    return (
        f"Better than dense: {better} of {len(measured)} cells. First is"
        f" {routed(str(best['cell']))}, {_metric(metric)} {interval} against dense.{few}"
    )


def joined(names: Iterable[str], *, most: int = 6) -> str:
    """Return `a, b and 3 more`."""
    found = [routed(name) for name in names]
    if len(found) > most:
        return f"{', '.join(found[:most])} and {len(found) - most} more"
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


def _trend(
    correlation: float, positive: str, negative: str = "the opposite of the paper's trend"
) -> str:
    if correlation > 0.5:
        return positive
    return negative if correlation < -0.5 else "no clear trend"


def _metric(metric: str) -> str:
    return _plain(label(metric))


def _plain(text: str) -> str:
    """Return the text without the marks of formulas and line breaks."""
    return text.replace("$", "").replace("\n", "")
