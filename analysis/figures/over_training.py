"""Quality over training, without and with guidance, a panel each (Fig. S9, DiT-B/2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curves, curves, draw_curves
from tread_lab.analysis.figures.kind import (
    Drawn,
    FigureKind,
    SweepRecords,
    quality_metrics,
    slug,
)
from tread_lab.analysis.figures.sentences import number, routed
from tread_lab.analysis.figures.style import COLUMN, PAGE, Axes, figure
from tread_lab.frames import own_metrics

STEPS = "train.steps"


@dataclass(frozen=True)
class OverTraining:
    """One set of curves over training steps for every guidance that samples were drawn with.

    Attributes:
        panels: (title, curves); every point is a run trained to that many steps, its schedule
            included: runs of other lengths are not stages of one run.
    """

    panels: tuple[tuple[str, Curves], ...]


def over_training(frame: pd.DataFrame, metric: str) -> OverTraining:
    """Return the panels of one metric: one for each way in which its images were drawn.

    `fd[x]@1k` stands for `fd[x]@1k w=1` and `fd[x]@1k w=2` where both were measured.

    Raises:
        UserError: no such metric, or training steps are no axis of the sweep.
    """
    own = [c for c in own_metrics(frame) if c.split(" ")[0] == metric and ":" not in c]
    columns = own or [metric]
    panels = [(_title(column, metric), curves(frame, column, STEPS)) for column in columns]
    return OverTraining(tuple(panels))


def budget_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of quality of a sweep over numbers of training steps; else none."""
    if STEPS not in frame or frame[STEPS].nunique() < 2:
        return []
    return list(dict.fromkeys(metric.split(" ")[0] for metric in quality_metrics(frame)))


def draw_over_training(found: Curves, ax: Axes, *, title: str = "", legend: bool = True) -> None:
    """Draw dense curves black and dashed, routes in colour; cells without a number are lettered."""
    draw_curves(found, ax, legend=legend)
    ax.set_xlabel("training steps")
    ax.set_title(title)


def _title(column: str, metric: str) -> str:
    """Return how the images of a column were drawn: `guidance w = 2`, or as the column says."""
    setting = column.removeprefix(metric).strip()
    weight = setting.removeprefix("w=")
    if setting.startswith("w=") and " " not in setting:
        return "without guidance" if weight == "1" else f"with guidance, $w$ = {weight}"
    return setting


def caption(found: OverTraining) -> str:
    """Return the last value of every curve, panel by panel."""
    sentences = []
    for title, panel in found.panels:
        ends = []
        for curve in panel.curves:
            measured = np.flatnonzero(np.isfinite(curve.value))
            if len(measured):
                step, value = curve.x[measured[-1]], curve.value[measured[-1]]
                ends.append(f"{routed(curve.name)} {number(value)} at {step:.0f} steps")
        if ends:
            sentences.append(f"{title.replace('$', '') or 'at the end'}: {', '.join(ends)}")
    return "; ".join(sentences) + "."


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric in budget_metrics(records.frame):
        found = over_training(records.frame, metric)
        width = PAGE if len(found.panels) > 1 else COLUMN
        fig, axes = figure(width=width, height=2.3, columns=len(found.panels))
        for k, ((title, panel), ax) in enumerate(zip(found.panels, axes)):
            draw_over_training(panel, ax, title=title, legend=k == 0)
        yield Drawn(f"over_training-{slug(metric)}", caption(found), fig, metric)


OVER_TRAINING = FigureKind("Quality over training", _drawn)
