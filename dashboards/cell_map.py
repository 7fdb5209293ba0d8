"""The map of a sweep's cells: each with its place on every axis, its number and what that means."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.pareto import front_of_cells, vary_in_cost
from tread_lab.analysis.report.page import typeset
from tread_lab.frames import (
    HIGH,
    LOW,
    best_first,
    cells_frame,
    delta_column,
    disturbed,
    intervals_over,
    metric_numbers,
    ranking_key,
    result_texts,
    with_delta,
    with_metrics,
)
from tread_lab.frames.columns import plain
from tread_lab.frames.ranking_table import training_price
from tread_lab.records.metric_names import (
    FAMILY_FLOPS,
    GAP_HELDOUT,
    GAP_ROUTE,
    GAP_TRAIN,
    HELDOUT_LOSS,
    TRAIN_FLOPS,
    metric_kind,
)
from tread_lab.records.plan import StoredPlan
from tread_lab.specs.labels import ROUTE_AXES, place_label, without_axis
from tread_lab.specs.units import quantity, ratio

Tree = dict[str, Any]
GAPS = {
    GAP_HELDOUT: "difference to dense",
    GAP_TRAIN: "routed forward less the dense baseline",
    GAP_ROUTE: "routed less dense forward of the same run",
}
LEGENDS = {
    ("quality", "lower"): "blue is better than dense",
    ("quality", "higher"): "blue is better than dense",
    ("cost", "lower"): "blue costs less than dense",
    ("cost", "higher"): "blue is faster than dense",
}
RANKINGS = {
    ("quality", "lower"): "Ranked by {metric}, best first",
    ("quality", "higher"): "Ranked by {metric}, best first",
    ("cost", "lower"): "Ranked by {metric}, cheapest first",
    ("cost", "higher"): "Ranked by {metric}, fastest first",
    ("neither", ""): "Ordered by {metric}, lowest first; it is no measure of quality",
}
LABELS = {  # of dimensions; others have their own name
    "start": "first block skipped",
    "end": "last block skipped",
    "rate": "selection rate",
}
BUSY = "speed/disturbed"
NOT_SET = "not set"  # the value of an axis that a cell does not set
NO_ROUTE = "no route"  # the start and the end of a dense cell
PLACE = ("start", "end")


def cells(frame: pd.DataFrame, metric: str | None, plan: StoredPlan | None = None) -> Tree:
    """Return every cell in plan order, column by column, with its place on every dimension.

    Values are averaged over seeds; a cell has one only if all its seeds completed. They are what
    `shows` says: differences to the baseline of the same seed, or the metric itself.

    Args:
        plan: of a search, tells the space: its dimensions and the cells that were not tried.
    """
    unread, frame = "unread" in set(frame["state"]), settled(frame)
    known = metric if metric in frame else None
    key = str(ranking_key(frame))
    prices = (TRAIN_FLOPS, FAMILY_FLOPS)
    trials, shown, column = with_metrics(frame, known or "", key, *prices), "", known
    if known:
        busy = disturbed(frame, known).astype(float)
        trials, shown = with_delta(trials.assign(**{BUSY: busy}), known), shows(frame, known)
        column = known if shown == "value" else delta_column(known)
    rows = cells_frame(trials)
    untried = _untried(plan)
    space = pd.concat([rows, untried], ignore_index=True) if len(untried) else rows
    asked = (axis for cell in (plan.space if plan else ()) for axis in cell)
    space.attrs["axes"] = list(dict.fromkeys([*rows.attrs.get("axes", []), *asked]))
    varied = dimensions(space)
    places = _places(space, varied)
    tree: Tree = {
        "metric": known,
        "dimensions": varied,
        "name": list(rows["cell"]),
        "short": short_names(rows),
        "role": list(rows["role"]),
        "at": places[: len(rows)],
        "state": ["unread"] * len(rows) if unread else _states(rows, column),
        "reason": list(rows["reason"]),
    }
    if plan and plan.search:
        tree["search"] = {
            "trials": plan.wanted,
            "cells": plan.search.get("space", {}).get("cells"),
            "order": _order(rows),
            "untried": places[len(rows) :],
            "names": list(untried["cell"]) if len(untried) else [],
        }
    if known and column:
        ranked = best_first(rows, column)
        tree |= {"order": ranked.index.tolist()} | _numbers(ranked.sort_index(), column)
        tree |= {"pareto": front(rows, known, key), "meaning": meaning(known, shown)}
        tree["seeds"] = _of_seeds(trials, column)
    return tree


def short_names(rows: pd.DataFrame) -> list[str]:
    """Return the names of cells without the values of numeric axes that all trials share."""
    trials = rows[rows["role"] == "trial"]
    axes = [axis for axis in rows.attrs.get("axes", ()) if axis in trials]
    shared = [axis for axis in axes if trials[axis].nunique(dropna=False) == 1]
    names = list(rows["cell"])
    for axis in shared:
        names = [without_axis(name, axis) for name in names]
    return names if len(set(names)) == len(names) else list(rows["cell"])


def _of_seeds(frame: pd.DataFrame, column: str) -> list[list[float | None]] | None:
    """Return what every seed of a cell shows, cell by cell; `None` if no cell has several."""
    place = frame.groupby(["role", "cell"], sort=False).ngroup()
    seeds: list[list[float | None]] = [[] for _ in range(place.max() + 1)]
    for cell, value in zip(place, numbers(frame[column])):
        seeds[cell].append(value)
    return seeds if max(map(len, seeds)) > 1 else None


def _numbers(rows: pd.DataFrame, column: str) -> Tree:
    """Return value and interval of every cell, with what the interval is over."""
    done = rows["state"] == "completed"
    ends = {"value": column, "low": column + LOW, "high": column + HIGH}
    return {
        **{name: numbers(rows[key].where(done)) for name, key in ends.items()},
        "text": list(map(typeset, result_texts(rows, column))),
        "over": intervals_over(rows, column),
        "disturbed": list(rows[BUSY] > 0),
    }


def shows(frame: pd.DataFrame, metric: str) -> str:
    """Return `difference`, `gap` or `value`: what cells show of a metric.

    A metric that no completed baseline has cannot be a difference, whatever it is; nor can any in a
    sweep without baselines.
    """
    compared = metric_kind(metric).compared
    baselines = frame[frame["role"] == "baseline"]
    dense = baselines.loc[baselines["state"] == "completed", metric]
    ended = baselines.empty or len(dense) > 0
    lacking = ended and dense.isna().all() and frame[metric].notna().any()
    return "value" if compared == "difference" and lacking else compared


def meaning(metric: str, shown: str) -> Tree:
    """Return what the page may claim of a metric: titles, legend, and which side is better."""
    kind = metric_kind(metric)
    titles = {
        "difference": f"{metric}, difference to dense",
        "gap": f"{metric}, {GAPS.get(metric, 'a difference')}",
        "value": f"{metric}, the value itself",
    }
    no_quality = "no measure of quality"
    if shown == "value":
        legend = {1: "lower is better", -1: "higher is better", 0: no_quality}[kind.sign]
    elif kind.nature == "neither":
        legend = f"purple is less, green is more: {no_quality}"
    else:
        legend = LEGENDS[kind.nature, kind.better]
    return {
        "shows": shown,
        "sign": kind.sign,
        "unit": kind.unit,
        "title": titles[shown],
        "legend": legend,
        "ranking": RANKINGS[kind.nature, kind.better].format(metric=metric),
    }


def settled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with states that records have instead of the dashboard's own."""
    own = frame["state"].isin(["measuring", "unread"])
    if not own.any():
        return frame
    recorded = frame["state"].replace({"measuring": "running", "unread": "pending"})
    return frame.assign(state=recorded)


def dimensions(rows: pd.DataFrame) -> list[Tree]:
    """Return what varies: start and end of single routes, else the route; then the other axes.

    Dense cells alone make no dimension of a start or an end that all routes share.
    """
    trials = rows[rows["role"] == "trial"]
    axes = [a for a in rows.attrs.get("axes", ()) if a in rows]
    place = [*PLACE]
    several = "route" in trials and trials["route"].astype(str).str.contains("+", regex=False).any()
    placed = set(place) <= set(rows.columns) and not several  # which have no one start and end
    keys = place if placed and len(trials[place].drop_duplicates()) > 1 else []
    if not keys and "route" in rows and trials["route"].nunique() > 1:
        keys = ["route"]
    keys = [*keys, "rate"]
    keys += [axis for axis in axes if axis not in ROUTE_AXES]
    tried = trials["state"].notna()
    values = {key: _values(trials[key], tried) for key in keys if key in trials}
    return [
        {"key": key, "label": LABELS.get(key, key), "values": distinct}
        for key, distinct in values.items()
        if len(distinct) > 1 + (NO_ROUTE in distinct)
    ]


def front(rows: pd.DataFrame, metric: str, key: str) -> Tree | None:
    """Return quality against cost of cells; `None` where either is no measure or the same for all.

    Where baselines are of several kinds, gaps and losses give way to the `ranking_key`.
    """
    of_loss = metric.startswith("gap/") or metric == HELDOUT_LOSS
    if of_loss and sum(rows["role"] == "baseline") != 1:
        metric = key
    if metric_kind(metric).nature != "quality" or metric not in rows or not vary_in_cost(rows):
        return None
    price = training_price(rows)
    index, points = cell_numbers(rows), front_of_cells(rows, metric, price)
    measured = points.measured
    return {
        "metric": metric,
        "relative": points.relative,
        "heading": points.heading + " (1 = dense)" * points.relative,
        "cell": [index[key] for key in zip(measured["role"], measured["name"])],
        **{name: numbers(measured[name]) for name in ("cost", "value", "low", "high")},
        "texts": [
            typeset(text)
            for text in metric_numbers(metric, measured["value"], measured["low"], measured["high"])
        ],
        "prices": [
            f"{ratio(c)} of dense" if points.relative else quantity(c, "FLOP")
            for c in measured["cost"]
        ],
        "front": measured["front"].tolist(),
    }


def cell_numbers(frame: pd.DataFrame) -> dict[tuple[str, str], int]:
    """Return (role, cell) -> its place in `cells`."""
    pairs = frame[["role", "cell"]].drop_duplicates()
    return {pair: k for k, pair in enumerate(zip(pairs["role"], pairs["cell"]))}


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return numbers of six digits; `None` for what is not finite."""
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in map(float, values)]


def _states(rows: pd.DataFrame, column: str | None) -> list[str]:
    """Return the cells' states; one that completed beside a baseline without a result says so."""
    alone = (rows["state"] == "completed") & (rows["role"] == "trial") & (rows["reason"] != "")
    if column is not None:
        alone &= rows[column].isna()
    return list(rows["state"].mask(alone, "uncompared"))


def _untried(plan: StoredPlan | None) -> pd.DataFrame:
    """Return the cells of a search's space that it has not asked for, with their axis values."""
    if plan is None or not plan.space:
        return pd.DataFrame()
    tried = {_values_of(trial.cell) for trial in plan.trials if trial.role == "trial"}
    cells = [{axis: plain(value) for axis, value in cell.items()} for cell in plan.space]
    return pd.DataFrame(
        {"role": "trial", "cell": place_label(cell), **cell}
        for cell in cells
        if _values_of(cell) not in tried
    )


def _values_of(cell: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Return what tells a cell from others: its axes, too, as each list of a space has its own."""
    return frozenset((axis, str(json_value(plain(value)))) for axis, value in cell.items())


def _order(rows: pd.DataFrame) -> list[int | None]:
    """Return for each cell which trial of the search it is, from 1."""
    trial = rows["role"] == "trial"
    return [int(n) if t else None for n, t in zip(trial.cumsum(), trial)]


def _places(rows: pd.DataFrame, found: Sequence[Tree]) -> list[list[int]]:
    """Return for each cell the index of its value on every dimension; -1 where it has none.

    The route of a cell that was not tried is known by its axes alone.
    """
    columns = []
    trial, tried = rows["role"] == "trial", rows["state"].notna()
    for dimension in found:
        key, index = dimension["key"], {v: k for k, v in enumerate(dimension["values"])}
        known = trial & (rows[key].notna() | tried | (key not in PLACE))
        values = rows[key].astype(object).where(rows[key].notna(), _absent(key))
        columns.append([index.get(json_value(v), -1) if k else -1 for v, k in zip(values, known)])
    return [list(place) for place in zip(*columns)] if columns else [[] for _ in range(len(rows))]


def _values(column: pd.Series[Any], tried: pd.Series[bool]) -> list[Any]:
    """Return the distinct values: numbers in order, texts as the plan has them, none last."""
    values = [json_value(value) for value in column.dropna().unique()]
    ordered = sorted(values) if all(isinstance(v, int | float) for v in values) else values
    return [*ordered, _absent(str(column.name))] if column[tried].isna().any() else ordered


def _absent(key: str) -> str:
    """Return the value of a dimension in which a cell has none."""
    return NO_ROUTE if key in PLACE else NOT_SET


def json_value(value: Any) -> Any:
    """Return a value of a frame as JSON has it: whole numbers as integers, none as `None`."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if value is pd.NA or (isinstance(value, float) and math.isnan(value)) else value
