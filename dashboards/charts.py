"""Plotly charts of a sweep, each drawn from the prepared data of its matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.curves import Curves
from tread_lab.analysis.figures.loss_gap import StepGaps, step_looks
from tread_lab.analysis.figures.pareto import Front
from tread_lab.analysis.figures.points import Points
from tread_lab.analysis.figures.similarity import Similarity
from tread_lab.records.metric_names import (
    TRAIN_LOSS,
    is_difference,
    metric_kind,
    metric_label,
    value_text,
)
from tread_lab.results import ARROW, routed

BETTER_TO_WORSE = ((0.0, style.BLUE), (0.5, "#F7F7F7"), (1.0, style.ORANGE))
LESS_TO_MORE = ((0.0, style.PURPLE), (0.5, "#F7F7F7"), (1.0, "#1B7837"))
MARGIN = {"l": 60, "r": 20, "t": 28, "b": 52}
BARE = {"showgrid": False, "zeroline": False}
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}  # matplotlib's names
ZERO = "•"  # beside a number in a map
MOST_ROWS = 40  # cells of a dot chart
Numbers = Mapping[tuple[str, str], int]  # role and name of a cell -> its number on the page


@dataclass(frozen=True)
class Chart:
    """A chart of the page.

    Attributes:
        title: of the card that holds it.
        caption: one or two sentences below it.
        question: what was held equal, where the page switches between two; else empty.
    """

    title: str
    figure: go.Figure
    caption: str = ""
    question: str = ""

    @property
    def json(self) -> str:
        """The figure as JSON that may stand inside a `<script>` element."""
        text = self.figure.to_json(validate=False)
        return str(text).replace("<", "\\u003c")


def figure(*traces: Any, height: int = 320, **layout: Any) -> go.Figure:
    """Return a figure in the look of the page; colours of text and lines are the page's own."""
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": MARGIN,
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "showlegend": False,
    }
    drawn = go.Figure([*traces], {**base, **layout})
    return drawn.update_yaxes(automargin=True)


def place_map(places: Points, numbers: Numbers, scale: pd.Series[float]) -> go.Figure:
    """Return a cell for every route, its start from above and its end from the left.

    The best is outlined; `map_key` says what the other marks mean.

    Args:
        scale: the values that the colours reach over.
    """
    rows = places.rows
    ends = {name: range(rows[name].min(), rows[name].max() + 1) for name in ("start", "end")}
    best = rows.loc[[places.best]] if places.best is not None else rows.iloc[:0]
    whole = {"dtick": 1, "constrain": "domain"}
    return figure(
        _map(places, ("start", "end"), ends, numbers, scale),
        height=150 + 32 * len(ends["start"]),
        xaxis={"title": "last block skipped", **whole, **BARE},
        yaxis={"title": "first block skipped", "autorange": "reversed", **whole, **BARE},
        annotations=_letters(rows, ("end", "start")),
        shapes=[_frame(*[row["end"]] * 2, *[row["start"]] * 2) for _, row in best.iterrows()],
    )


def two_axes(points: Points, axes: Sequence[str], numbers: Numbers) -> go.Figure:
    """Return a cell for every pair of values of two axes, the first along the bottom."""
    across, up = axes
    rows = points.rows.assign(**{axis: points.rows[axis].astype(str) for axis in axes})
    values = {axis: [*dict.fromkeys(rows[axis])] for axis in axes}
    named = replace(points, rows=rows)
    return figure(
        _map(named, (up, across), values, numbers, rows["value"]),
        height=170 + 36 * len(values[up]),
        xaxis={"title": across, "type": "category", **BARE},
        yaxis={"title": up, "type": "category", **BARE},
        annotations=_letters(rows, (across, up)),
    )


def map_key(points: Points) -> str:
    """Return what the marks in a map mean, of those that it has."""
    rows = points.rows
    looks = dict.fromkeys(style.STATE_LOOKS[s] for s in rows.loc[rows["value"].isna(), "state"])
    marks = {
        f"{ZERO}: interval ({points.measured_as}) holds zero": bool(style.holds_zero(rows).any()),
        "italics: no run": bool("seeds" in rows and (rows["seeds"] == 0).any()),
        **{f"{look.letter}: {look.text}": True for look in looks},
    }
    told = "; ".join(mark for mark, drawn in marks.items() if drawn)
    return f" {told[:1].upper()}{told[1:]}." if told else ""


def _letters(rows: pd.DataFrame, axes: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the letter of its state in each cell of a map that has no number."""
    x, y = axes
    return [
        {
            "x": row[x],
            "y": row[y],
            "text": style.STATE_LOOKS[row["state"]].letter,
            "showarrow": False,
        }
        for _, row in rows[rows["value"].isna()].iterrows()
    ]


def _map(
    points: Points,
    axes: tuple[str, str],
    values: Mapping[str, Sequence[Any]],
    numbers: Numbers,
    scale: pd.Series[float],
) -> Any:
    """Return a heatmap of the first point at each pair of values, up and across."""
    power = style.power_of_ten(scale)
    rows = points.rows.assign(
        text=_short(points, power),
        told=texts(points),
        number=pd.Series(_numbers(points.rows, numbers), points.rows.index, dtype=object),
    )
    first = rows.drop_duplicates([*axes]).set_index([*axes])

    def grid(column: str) -> pd.DataFrame:
        wide = first[column].unstack()
        return wide.reindex(index=[*values[axes[0]]], columns=[*values[axes[1]]])

    return go.Heatmap(
        x=[*values[axes[1]]],
        y=[*values[axes[0]]],
        z=grid("value").to_numpy(float),
        text=grid("text").fillna("").to_numpy(str),
        texttemplate="%{text}",
        customdata=grid("number").to_numpy(object),
        hovertext=grid("told").fillna("").to_numpy(str),
        hoverinfo="text",
        xgap=2,
        ygap=2,
        **colours(points.metric, scale, power),
    )


def dots(points: Points, numbers: Numbers, seeds: pd.DataFrame | None = None) -> go.Figure:
    """Return a row for each cell, the best on top: its value, its interval, its seeds.

    A marker is hollow where the interval holds zero, and a diamond for a control.

    Args:
        seeds: `name` and `value` of each seed of a cell, drawn as small points.
    """
    sign = metric_kind(points.metric).sign or 1
    rows = points.measured.sort_values("value", ascending=sign > 0, kind="stable").head(MOST_ROWS)
    controls = rows["role"] == "control" if "role" in rows else [False] * len(rows)
    shape, undecided = np.where(controls, "diamond", "circle"), style.holds_zero(rows)
    compared = is_difference(points.metric)
    colour = style.difference_colour if compared else lambda *_: style.INDIGO
    marker = {
        "color": [colour(points.metric, value) for value in rows["value"]],
        "symbol": [f"{s}-open" if u else s for s, u in zip(shape, undecided)],
        "size": 9,
    }
    names = rows["name"].map(routed)
    drawn = _points(replace(points, rows=rows), numbers, "value", names, marker=marker)
    traces = [drawn]
    if seeds is not None:
        some = seeds[seeds["name"].isin(rows["name"])]
        look = {"mode": "markers", "marker": {"size": 4, "color": style.GREY}, "hoverinfo": "skip"}
        traces.insert(0, go.Scatter(x=some["value"], y=some["name"].map(routed), **look))
    return figure(
        *traces,
        height=90 + 22 * len(rows),
        xaxis={
            "title": metric_label(points.metric),
            "zeroline": compared,
            "rangemode": "tozero" if compared else "normal",
        },
        yaxis={"categoryorder": "array", "categoryarray": [*names[::-1]]},
    )


def lines(found: Curves, numbers: Numbers, over: str) -> go.Figure:
    """Return curves along a numeric axis, dense ones dashed, each point with its interval."""
    traces, some = [], found.curves
    palette = (
        sample_colorscale("Viridis", len(some)) if len(some) > len(style.CYCLE) else style.CYCLE
    )
    for k, (name, rows) in enumerate(some.items()):
        dense = bool(rows["dense"].all())
        colour = None if dense else palette[k % len(palette)]
        own = Points(found.metric, rows[rows["value"].notna()], found.measured_as)
        line = {"dash": "dash" if dense else "solid", "color": colour}
        look = {"name": routed(name), "mode": "lines+markers", "line": line}
        traces.append(_points(own, numbers, "x", own.rows["value"], **look))
    axes = {"xaxis": {"title": over}, "yaxis": {"title": metric_label(found.metric)}}
    return figure(*traces, height=360, showlegend=len(traces) > 1, **axes)


def front(points: Front, numbers: Numbers) -> go.Figure:
    """Return quality against cost; the front is joined by steps, dense runs are diamonds."""
    rows, steps = points.measured, points.ordered
    marker = {
        "color": np.where(rows["front"], style.GREEN, style.GREY),
        "symbol": np.where(rows["role"] == "baseline", "diamond", "circle"),
        "size": 9,
    }
    drawn = _points(replace(points, rows=rows), numbers, "cost", rows["value"], marker=marker)
    look = {"mode": "lines", "hoverinfo": "skip"}
    line = {"shape": "hv", "color": style.GREEN, "width": 1}
    joined = go.Scatter(x=steps["cost"], y=steps["value"], line=line, **look)
    over = points.heading + " (1 = dense)" * points.relative
    axes = {"xaxis": {"title": over}, "yaxis": {"title": metric_label(points.metric)}}
    return figure(joined, drawn, height=360, **axes)


def _points(points: Points, numbers: Numbers, x: str, y: Any, **look: Any) -> Any:
    """Return points with their intervals, which lie along x for values there, else along y."""
    rows, ends = points.rows, style.bars(points.rows)
    bars = {"type": "data", "symmetric": False, "array": ends[1], "arrayminus": ends[0]}
    bars |= {"width": 3, "thickness": 1.2, "color": style.GREY}
    look = {"mode": "markers", "error_x" if x == "value" else "error_y": bars, **look}
    hover = {"hovertext": texts(points), "hoverinfo": "text", "customdata": _numbers(rows, numbers)}
    return go.Scatter(x=rows[x], y=y, **hover, **look)


def training_gaps(curves: Sequence[StepGaps]) -> go.Figure:
    """Return the smoothed difference of training losses, a line for each cell."""
    traces = []
    for curve, dashes, colour in step_looks(curves[:MOST_ROWS]):
        line = {"width": 1.4, "color": colour, "dash": DASHES[dashes]}
        look = {"name": routed(curve.name), "mode": "lines", "line": line}
        traces.append(go.Scatter(x=curve.steps, y=curve.gaps, **look))
    axes = {"xaxis": {"title": "training step"}, "yaxis": {"title": "Δ training loss"}}
    return figure(*traces, height=340, showlegend=len(traces) < 20, **axes)


def losses(named: Mapping[str, Sequence[pd.Series[float]]]) -> go.Figure:
    """Return logged training losses: of each name the mean of its seeds, and their range."""
    traces: list[Any] = []
    for k, (name, seeds) in enumerate(named.items()):
        table = pd.concat([*seeds], axis=1).sort_index()
        steps, dense = table.index.to_numpy(), name == "dense"
        colour = None if dense else style.CYCLE[k % len(style.CYCLE)]
        if len(seeds) > 1:
            ends = np.concatenate([table.max(axis=1), table.min(axis=1)[::-1]])
            look = {"fill": "toself", "fillcolor": colour or style.GREY, "opacity": 0.2}
            look |= {"mode": "none", "hoverinfo": "skip", "showlegend": False}
            traces.append(go.Scatter(x=np.concatenate([steps, steps[::-1]]), y=ends, **look))
        line = {"width": 1.5, "color": colour, "dash": "dash" if dense else None}
        mean = table.mean(axis=1)
        traces.append(go.Scatter(x=steps, y=mean, name=routed(name), mode="lines", line=line))
    axes = {"xaxis": {"title": "training step"}, "yaxis": {"title": metric_label(TRAIN_LOSS)}}
    return figure(*traces, height=300, showlegend=True, **axes)


def similarity(matrix: Similarity) -> go.Figure:
    """Return the cosine similarity of block outputs, block 0 at the top left, routes framed."""
    frames = [_frame(start, end, start, end, color="white") for start, end in matrix.routes]
    drawn = go.Heatmap(
        z=np.round(matrix.mean, 3),
        zmin=float(np.floor(10 * matrix.mean.min()) / 10),
        zmax=1,
        colorscale="Viridis",
        hovertemplate="blocks %{y} and %{x}: %{z}<extra></extra>",
    )
    return figure(
        drawn,
        height=280,
        xaxis={"title": "block", **BARE},
        yaxis={"title": "block", "autorange": "reversed", **BARE},
        shapes=frames,
    )


def colours(metric: str, values: pd.Series[float], power: int) -> dict[str, Any]:
    """Return the colour settings of a map of differences: white is zero, blue is better.

    Args:
        power: of ten, by which the numbers in the map are divided.
    """
    times = f", 10<sup>{power}</sup>" if power else ""
    title = {"text": metric_label(metric) + times, "side": "right"}
    if not is_difference(metric):  # the values themselves
        return {"colorscale": "Viridis", "colorbar": {"title": title, "thickness": 12}}
    sign = metric_kind(metric).sign
    scale: tuple[tuple[float, str], ...] = LESS_TO_MORE if sign == 0 else BETTER_TO_WORSE
    if sign < 0:
        scale = tuple((1 - at, colour) for at, colour in reversed(scale))
    reach = float(np.nanmax(np.abs(values.to_numpy(float)), initial=0.0)) or 1.0
    ticks = {
        "tickvals": [-reach, 0, reach],
        "ticktext": style.signed(np.array([-1, 0, 1]) * reach / 10.0**power),
    }
    bar = {"title": title, "thickness": 12, **ticks}
    return {"zmid": 0, "zmin": -reach, "zmax": reach, "colorscale": scale, "colorbar": bar}


def texts(points: Points) -> list[str]:
    """Return what the pointer shows of each row: name, number with interval, state."""
    found = []
    for _, row in points.rows.iterrows():
        number = value_text(points.metric, row["value"], row["low"], row["high"])
        state = "" if row["state"] == "completed" else str(row["state"])
        told = f" ({points.measured_as})" if number and np.isfinite(row["low"]) else ""
        name = routed(str(row.get("name") or f"{row.get('start')}{ARROW}{row.get('end')}"))
        found.append(f"{name}<br>{number or state}{told}")
    return found


def _short(points: Points, power: int) -> list[str]:
    """Return the numbers in a map, divided by a power of ten, with the marks of `map_key`."""
    rows = points.rows
    values = rows["value"].to_numpy(float) / 10.0**power
    if not is_difference(points.metric):
        return [f"{value:.4g}" if np.isfinite(value) else "" for value in values]
    undecided, guessed = style.holds_zero(rows), rows.get("seeds", pd.Series(1, rows.index)) == 0
    facts = zip(style.signed(values), undecided, guessed)
    marked = ((text + f" {ZERO}" * zero, guess) for text, zero, guess in facts)
    return [f"<i>{text}</i>" if guess else text for text, guess in marked]


def _frame(left: int, right: int, top: int, bottom: int, **line: str) -> dict[str, Any]:
    """Return the outline of whole cells of a map."""
    x, y = (left - 0.5, right + 0.5), (top - 0.5, bottom + 0.5)
    ends = {"x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1]}
    return {"type": "rect", **ends, "line": {"width": 2.5, **line}}


def _numbers(rows: pd.DataFrame, numbers: Numbers) -> list[int | None]:
    """Return the number of the cell of each row; `None` where it is none of the page's."""
    roles = rows["role"] if "role" in rows else ["trial"] * len(rows)
    return [numbers.get((str(role), str(name))) for role, name in zip(roles, rows["name"])]
