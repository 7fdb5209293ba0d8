"""Differences to dense in rows: of all cells of a sweep; effects of an axis and of routes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import (
    NUMBERS,
    Drawn,
    Points,
    SweepRecords,
    cell_points,
    named,
    sample_metrics,
)
from tread_lab.config.labels import without_axis
from tread_lab.records.metric_names import (
    MINUS,
    delta_column,
    metric_kind,
    metric_label,
    value_text,
)
from tread_lab.results import (
    cells_frame,
    of_baseline,
    other_axes,
    require_metric,
    routed,
    with_delta,
)
from tread_lab.results.intervals import t_interval

# What a difference is of -> what the caption calls the largest one.
EFFECTS = (
    "Differences of {metric}, paired by seed, with 95% intervals over {seeds} seeds: of {axis}"
    " between dense runs, of a route at each {axis}, and of the latter among each other; a dot is"
    " hollow where the interval holds zero."
)
KINDS = {"axis": "{axis}", "route": "a route", "interaction": "the one on the other"}


def crossed_axis(frame: pd.DataFrame) -> str | None:
    """Return the only axis beside the route, if its values have a dense baseline per seed each."""
    trials = frame[frame["role"] == "trial"]
    axes = [axis for axis in other_axes(frame) if trials[axis].nunique() > 1]
    if len(axes) != 1 or trials["baseline"].isna().any():
        return None
    owners = trials.groupby("baseline")[axes[0]].nunique()
    baselines = trials.groupby([axes[0], "seed"])["baseline"].nunique()
    return str(axes[0]) if (owners == 1).all() and (baselines == 1).all() else None


def two_ways(frame: pd.DataFrame, metric: str) -> pd.DataFrame | None:
    """Return the effects of an axis and of the routes on a metric, each paired by seed.

    Columns: kind, name (what is subtracted from what), value, low and high of its 95% interval over
    seeds, seeds, axis. A kind is `axis` (two values of the axis, both dense), `route` (a route less
    dense, at one value), or `interaction` (the route's effect at one value less that at the first).
    It is `None` where no effect has two seeds.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    axis = crossed_axis(frame)
    if axis is None:
        return None
    trials = with_delta(frame, metric)
    trials = trials[trials["role"] == "trial"]
    trials = trials.assign(
        at=trials[axis].map(str),
        setting=trials["cell"].map(lambda cell: without_axis(cell, axis)),
        dense=of_baseline(frame, metric),
    )
    dense = trials.groupby(["at", "seed"], sort=False)["dense"].first().unstack("seed")
    gains = trials.groupby(["setting", "at", "seed"], sort=False)[delta_column(metric)].first()
    of_settings = {
        routed(str(setting)): rows.droplevel("setting").unstack("seed")
        for setting, rows in gains.groupby("setting", sort=False)
    }
    minus = f" {MINUS} "
    axes = [("axis", f"{at}{minus}{first}, dense", gap) for at, first, gap in _to_first(dense)]
    routes = [
        ("route", f"{name}{minus}dense, {at}", gain.loc[at])
        for name, gain in of_settings.items()
        for at in gain.index
    ]
    interactions = [
        ("interaction", f"{name}: {at}{minus}{first}", gap)
        for name, gain in of_settings.items()
        for at, first, gap in _to_first(gain)
    ]
    found = [
        (kind, name, *t_interval(known), len(known), axis)
        for kind, name, gap in (*axes, *routes, *interactions)
        if len(known := gap.dropna().to_numpy(float)) > 1
    ]
    columns = ["kind", "name", "value", "low", "high", "seeds", "axis"]
    return pd.DataFrame(found, columns=columns) if found else None


def _to_first(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.Series[float]]]:
    """Yield each row after the first: its name, the first's, and the difference of the two."""
    first = rows.index[0]
    return ((at, first, rows.loc[at] - rows.loc[first]) for at in rows.index[1:])


def caption(ways: pd.DataFrame, metric: str) -> str:
    """Return what the figure shows, with the largest effect of each kind."""
    axis, over = ways["axis"].iloc[0], "-".join(map(str, sorted({*ways["seeds"]})))
    parts = [EFFECTS.format(metric=metric_label(metric), axis=axis, seeds=over)]
    for kind, rows in ways.groupby("kind", sort=False):
        largest = rows.iloc[int(rows["value"].abs().argmax())]
        size = value_text(delta_column(metric), *largest[NUMBERS])
        of = KINDS[str(kind)].format(axis=axis)
        parts.append(f"Largest effect of {of}: {size} ({largest['name']}).")
    return " ".join(parts)


def cell_gaps(frame: pd.DataFrame, metric: str) -> Points:
    """Return trials and controls with their differences to the baseline, averaged over seeds.

    The best stands first; cells without a number stand last.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    rows = with_delta(frame, metric)
    others = rows[(rows["role"] != "baseline") & (rows["run"] != rows["baseline"])]
    points = cell_points(cells_frame(others), delta_column(metric))
    values = (metric_kind(points.metric).sign or 1) * points.rows["value"]
    return replace(points, rows=points.rows.loc[values.sort_values(kind="stable").index])


def draw_cell_gaps(gaps: pd.DataFrame, metric: str, ax: style.Axes) -> None:
    """Draw a row for each cell, from above: a dot with its interval, or why it has no number.

    Blue is better than the baseline, orange worse; a dot is hollow where its interval holds zero.
    Rows are those of `cell_gaps` or `two_ways`, whose kinds have lines between them.
    """
    column, spread, undecided = delta_column(metric), style.bars(gaps), style.holds_zero(gaps)
    ax.axvline(0, color=style.BLACK, linewidth=0.7)
    for k, value in enumerate(gaps["value"]):
        if np.isfinite(value):
            colour, bar = style.difference_colour(column, value), spread[:, k : k + 1]
            style.draw_point(ax, value, -k, colour, hollow=undecided.iloc[k], xerr=bar)
        else:
            look = style.STATE_LOOKS[gaps["state"].iloc[k]]
            ax.text(0, -k, f" {look.letter} {look.text}", color=style.GREY, va="center")
    ax.set_yticks(-np.arange(len(gaps)), map(style.arrow, gaps["name"]))
    style.value_axis(ax.xaxis, column, gaps[NUMBERS])
    ax.set_ylim(0.5 - len(gaps), 0.5)
    kinds = gaps.get("kind", pd.Series("", index=gaps.index))
    for k in np.flatnonzero(kinds != kinds.shift())[1:].tolist():
        ax.axhline(0.5 - k, color=style.GREY, linewidth=0.5)


def cells(records: SweepRecords) -> Iterator[Drawn]:
    """Draw all cells of the sweep."""
    for metric in records.compared:
        points = cell_gaps(records.frame, metric)
        if len(points.measured) > 1:
            gaps = points.rows
            lines = sum(style.arrow(name).count("\n") + 1 for name in gaps["name"])
            fig, (ax,) = style.figure(width=style.PAGE, height=0.8 + 0.16 * lines)
            draw_cell_gaps(gaps, metric, ax)
            over = f" Intervals: {points.measured_as}." if points.measured_as else ""
            caption = (
                "Cells beside dense; a dot is hollow where its 95% interval holds zero." + over
            )
            yield Drawn(named("cells", metric), caption, fig)


def ways(records: SweepRecords) -> Iterator[Drawn]:
    """Draw how much is the route, and how much the other axis."""
    for metric in sample_metrics(records.frame):
        ways = two_ways(records.frame, metric)
        if ways is not None:
            fig, (ax,) = style.figure(width=style.PAGE, height=1.0 + 0.2 * len(ways))
            draw_cell_gaps(ways, metric, ax)
            yield Drawn(named("two_ways", metric), caption(ways, metric), fig)
