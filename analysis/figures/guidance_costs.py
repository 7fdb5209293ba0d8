"""Quality of generated images against what an image costs, one point for each guidance."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from tread_lab.analysis.figures.style import BLACK, CYCLE, Axes, Line2D, label
from tread_lab.frames import cells_frame
from tread_lab.records.metric_names import SAMPLE_FLOPS


@dataclass(frozen=True)
class GuidancePoint:
    """One guidance of one cell.

    Attributes:
        cell: which runs: their route, and further axis values.
        method: what is combined (`CFG`, `SG`, `CFG+SG`), or `none`.
        setting: weight and options as the column has them.
        flops: of one image.
        value: the metric, averaged over seeds.
    """

    cell: str
    method: str
    setting: str
    weight: float
    flops: float
    value: float


@dataclass(frozen=True)
class GuidanceCosts:
    """All points of one metric, in plan order."""

    metric: str
    points: tuple[GuidancePoint, ...]

    @property
    def cells(self) -> list[str]:
        return list(dict.fromkeys(point.cell for point in self.points))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(point.method for point in self.points))


def guidance_costs(frame: pd.DataFrame, metric: str) -> GuidanceCosts:
    """The planned columns `metric w=...` of `trials_frame`'s rows with the cost of an image.

    Args:
        metric: its name without a setting: `fd[fashion16-v1]@1k`.
    """
    cells = cells_frame(frame)
    columns = [c for c in frame.attrs.get("planned", ()) if c.startswith(f"{metric} w=")]
    points = [
        _point(row, column, setting, float(row[price]))
        for _, row in cells.iterrows()
        for column in columns
        for setting in [column.removeprefix(metric).strip()]
        for price in [f"{SAMPLE_FLOPS} {setting}"]
        if price in cells and math.isfinite(row[column])
    ]
    return GuidanceCosts(metric, tuple(points))


def _point(row: pd.Series, column: str, setting: str, flops: float) -> GuidancePoint:
    weight, *rest = setting.removeprefix("w=").split(" ")
    words = [word for word in rest if "=" not in word]
    method = re.sub(r"\([^)]*\)", "", words[0]) if words else "none" if weight == "1" else "CFG"
    return GuidancePoint(
        str(row["cell"]), method, setting, float(weight), flops, float(row[column])
    )


def draw_guidance_costs(costs: GuidanceCosts, axes: Sequence[Axes]) -> None:
    """One panel a cell on shared scales; colours are methods, numbers beside points weights.

    Where points crowd, one of them has its weight written.
    """
    colours = dict(zip([m for m in costs.methods if m != "none"], CYCLE * 2))
    colours["none"] = BLACK
    values, prices = ([getattr(p, name) for p in costs.points] for name in ("value", "flops"))
    for ax, cell in zip(axes, costs.cells):
        said: list[tuple[float, float]] = []
        for point in (point for point in costs.points if point.cell == cell):
            x, y = point.flops / 1e9, point.value
            ax.plot(x, y, "o", color=colours[point.method])
            place = (point.flops / max(prices), point.value / _span(values))
            if all(abs(place[0] - a) > 0.12 or abs(place[1] - b) > 0.06 for a, b in said):
                ax.annotate(f"{point.weight:g}", (x, y), (2, 2), textcoords="offset points", size=5)
                said.append(place)
        ax.set_title(cell)
        ax.set_xlabel("GFLOP per image")
    for ax in axes:
        ax.set_xlim(0, 1.12 * max(prices) / 1e9)
        ax.set_ylim(min(values) - 0.1 * _span(values), max(values) + 0.1 * _span(values))
    axes[0].set_ylabel(label(costs.metric))
    handles = [Line2D([], [], marker="o", ls="", color=colours[m], label=m) for m in costs.methods]
    axes[-1].legend(handles=handles, title="guidance (beside: weight)", loc="center left",
                    bbox_to_anchor=(1.0, 0.5))  # fmt: skip


def _span(values: Sequence[float]) -> float:
    return max(values) - min(values) or 1.0
