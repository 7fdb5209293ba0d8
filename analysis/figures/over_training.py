"""Quality over training, without and with guidance, a panel each (Fig. S9, DiT-B/2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curves, curves, draw_curves
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, quality_metrics
from tread_lab.analysis.figures.sentences import number, routed
from tread_lab.analysis.figures.style import COLUMN, PAGE, Axes, figure
from tread_lab.frames import STEP, own_metrics

STEPS = "train.steps"


@dataclass(frozen=True)
class OverTraining:
    """One set of curves over training steps for every guidance that samples were drawn with.

    Attributes:
        panels: (title, curves); a point is a stage of one run, or a run of its own length.
        warning: why stages stand in for no shorter runs; empty where they do.
    """

    panels: tuple[tuple[str, Curves], ...]
    warning: str = ""


def over_training(frame: pd.DataFrame, metric: str) -> OverTraining:
    """Return the panels of one metric: one for each way in which its images were drawn.

    `fd[x]@1k` stands for `fd[x]@1k` and `fd[x]@1k w=2` where both were measured.

    Args:
        frame: rows of `training_frame`.

    Raises:
        UserError: no such metric, or the sweep has no several steps of training.
    """
    own = [c for c in own_metrics(frame) if c.split(" ")[0] == metric and ":" not in c]
    columns = own or [metric]
    axis = training_axis(frame)
    plain = "without guidance" if len(columns) > 1 else ""
    panels = [(_title(column, metric) or plain, curves(frame, column, axis)) for column in columns]
    return OverTraining(tuple(panels), schedule_warning(frame))


def training_axis(frame: pd.DataFrame) -> str:
    """Return the column with training steps: of stages of runs, or of runs of several lengths."""
    return STEP if STEP in frame else STEPS


def schedule_warning(frame: pd.DataFrame) -> str:
    """Return why the stages of runs are no shorter runs; nothing for a constant rate."""
    schedules = frame.attrs.get("schedules", ()) if STEP in frame else ()
    if not schedules:
        return ""
    return (
        f" The rate falls to the end ({', '.join(schedules)}): an earlier step is no shorter run."
    )


def budget_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of quality of a sweep with several steps of training; else none."""
    axis = training_axis(frame)
    if axis not in frame or frame[axis].nunique() < 2:
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
        return f"with guidance, $w$ = {weight}"
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
    return "; ".join(sentences) + "." + found.warning


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric in budget_metrics(records.training):
        found = over_training(records.training, metric)
        width = PAGE if len(found.panels) > 1 else COLUMN
        fig, axes = figure(width=width, height=2.3, columns=len(found.panels))
        for k, ((title, panel), ax) in enumerate(zip(found.panels, axes)):
            draw_over_training(panel, ax, title=title, legend=k == 0)
        yield Drawn(named("over_training", metric), caption(found), fig, metric)


OVER_TRAINING = FigureKind("Quality over training", _drawn)
