"""Quality of generated images against what an image costs, one point for each guidance."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named
from tread_lab.analysis.figures.sentences import metric_text, result, routed
from tread_lab.frames import HIGH, LOW, cells_frame
from tread_lab.records.metric_names import SAMPLE_FLOPS, metric_kind
from tread_lab.records.status import RunState
from tread_lab.specs.units import quantity


@dataclass(frozen=True)
class GuidancePoint:
    """One guidance of one cell.

    Attributes:
        cell: which runs: their route, and further axis values.
        method: what is combined (`CFG`, `SG`, `CFG+SG`), or `none`.
        setting: weight and options as the column has them.
        flops: of one image.
        value, low, high: the metric, averaged over seeds, and its interval.
    """

    cell: str
    method: str
    setting: str
    weight: float
    flops: float
    value: float
    low: float = math.nan
    high: float = math.nan


def guidance_costs(frame: pd.DataFrame, metric: str) -> list[GuidancePoint]:
    """Return the planned columns `metric` and `metric w=...` with the cost of an image, by cell.

    A cell of `trials_frame`'s rows has points only if all its seeds completed.
    """
    cells = cells_frame(frame)
    cells = cells[cells["state"] == RunState.COMPLETED]
    planned = [c for c in frame.attrs.get("planned", ()) if c.split(" ")[0] == metric]
    columns = planned if any(" w=" in column for column in planned) else []
    return [
        _point(row, column, setting, float(row[price]))
        for _, row in cells.iterrows()
        for column in columns
        for setting in [column.removeprefix(metric)]
        for price in [f"{SAMPLE_FLOPS}{setting}"]
        if price in cells and math.isfinite(row[column])
    ]


def by_cell(points: Sequence[GuidancePoint]) -> dict[str, list[GuidancePoint]]:
    """Return the points of each cell, in plan order."""
    cells = dict.fromkeys(point.cell for point in points)
    return {cell: [point for point in points if point.cell == cell] for cell in cells}


def _point(row: pd.Series, column: str, setting: str, flops: float) -> GuidancePoint:
    guided = re.search(r" w=(\S+)", setting)
    words = [word for word in setting.split() if "=" not in word]
    method = re.sub(r"\([^)]*\)", "", words[0]) if words else "CFG" if guided else "none"
    text, weight = setting.strip() or "no guidance", float(guided[1]) if guided else 1.0
    numbers = (float(row[name]) for name in (column, column + LOW, column + HIGH))
    return GuidancePoint(str(row["cell"]), method, text, weight, flops, *numbers)


def draw_guidance_costs(
    points: Sequence[GuidancePoint], metric: str, axes: Sequence[style.Axes]
) -> None:
    """Draw a panel for each cell; colours are methods, numbers beside points are weights.

    Where points crowd, the weight stands at one of them only.
    """
    methods = list(dict.fromkeys(point.method for point in points))
    guided = [method for method in methods if method != "none"]
    colours = dict(zip(guided, style.CYCLE * 2)) | {"none": style.BLACK}
    values, prices = ([getattr(p, name) for p in points] for name in ("value", "flops"))
    sign = metric_kind(metric).sign or 1
    for ax, (cell, of_cell) in zip(axes, by_cell(points).items()):
        labelled: list[tuple[float, float]] = []
        for point in sorted(of_cell, key=lambda point: sign * point.value):  # the best has a name
            x, y = point.flops / 1e9, point.value
            ax.plot(x, y, "o", color=colours[point.method])
            place = (point.flops / max(prices), point.value / _span(values))
            if all(abs(place[0] - a) > 0.12 or abs(place[1] - b) > 0.06 for a, b in labelled):
                ax.annotate(f"{point.weight:g}", (x, y), (2, 2), textcoords="offset points", size=5)
                labelled.append(place)
        ax.set_title(style.arrow(cell))
        ax.set_xlabel("GFLOP per image")
    for ax in axes:
        ax.set_xlim(0, 1.12 * max(prices) / 1e9)
        ax.set_ylim(min(values) - 0.1 * _span(values), max(values) + 0.1 * _span(values))
    axes[0].set_ylabel(style.label(metric))
    handles = [style.Line2D([], [], marker="o", ls="", color=colours[m], label=m) for m in methods]
    axes[-1].legend(handles=handles, title="guidance (beside: weight)", **style.BESIDE)


def _span(values: Sequence[float]) -> float:
    return max(values) - min(values) or 1.0


def caption(points: Sequence[GuidancePoint], metric: str) -> str:
    """Return the best guidance of every cell, and the cost of an image with and without it."""
    name, sign = metric_text(metric), metric_kind(metric).sign
    if sign == 0:
        return f"{name} is no measure of quality: no guidance is best by it."
    if not points:
        return "No guidance has been measured with its cost yet."
    settings = []
    for cell, of_cell in by_cell(points).items():
        best = min(of_cell, key=lambda point: sign * point.value)
        plain = next((point for point in of_cell if point.method == "none"), None)
        beside = "" if plain is None else f", without guidance {_at_cost(plain, metric)}"
        settings.append(
            f"{routed(cell)}: best is {best.setting} with {_at_cost(best, metric)}{beside}"
        )
    return f"{name} and the cost of an image. {'; '.join(settings)}."


def _at_cost(point: GuidancePoint, metric: str) -> str:
    value = result(metric, point.value, point.low, point.high)
    return f"{value} at {quantity(point.flops, 'FLOP')}"


@figure_kind()
def guidances(records: SweepRecords) -> Iterator[Drawn]:
    """Guidance: quality against the cost of an image"""
    planned = records.frame.attrs["planned"]
    columns = [c for c in planned if " w=" in c and not c.startswith("cost/")]
    for metric in dict.fromkeys(column.split(" ")[0] for column in columns):
        points = guidance_costs(records.frame, metric)
        panels = len(by_cell(points))
        if len(points) > 2 and panels < 5:
            fig, axes = style.figure(width=1.2 + 1.9 * panels, height=2.4, columns=panels)
            draw_guidance_costs(points, metric, axes)
            yield Drawn(named("guidance", metric), caption(points, metric), fig, metric)
