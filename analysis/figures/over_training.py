"""Curves over training: by guidance (Fig. S9, DiT-B/2), and over steps, images, device-hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curve, Curves, curves, draw_curves
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named, quality_metrics
from tread_lab.analysis.figures.sentences import joined, result, routed
from tread_lab.analysis.figures.style import COLUMN, PAGE, Axes, figure, legend_height
from tread_lab.frames import STEP, disturbed, own_metrics
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_IMAGES,
    TRAIN_SECONDS,
    metric_kind,
)
from tread_lab.specs.trials import SPEND, STEPS
from tread_lab.specs.units import quantity

COSTS = {STEP: "training steps", TRAIN_IMAGES: "training images", DEVICE_HOURS: "device-hours"}


@dataclass(frozen=True)
class OverTraining:
    """Curves of one metric over training, a panel each.

    Attributes:
        panels: (title, curves); a point is a stage of one run, or a run of its own length.
        warning: why stages stand in for no shorter runs; empty where they do.
    """

    panels: tuple[tuple[str, Curves], ...]
    warning: str = ""

    @property
    def measured(self) -> bool:
        """Whether any curve has a number."""
        return any(True for _, panel in self.panels for _ in _ends(panel))


def over_training(frame: pd.DataFrame, metric: str) -> OverTraining:
    """Return a panel over training steps for each way in which images of a metric were drawn.

    Of rows of `training_frame`, `fd[x]@1k` stands for `fd[x]@1k` and `fd[x]@1k w=2`.

    Raises:
        UserError: no such metric, or the sweep has no several steps of training.
    """
    own = [c for c in own_metrics(frame) if c.split(" ")[0] == metric and ":" not in c]
    columns, axis = own or [metric], training_axis(frame)
    plain = ""
    if len(columns) > 1:
        plain = "without guidance" if "@" in metric else "as planned first"
    panels = [(_title(column, metric) or plain, curves(frame, column, axis)) for column in columns]
    return OverTraining(tuple(panels), schedule_warning(frame))


def over_costs(frame: pd.DataFrame, metric: str) -> OverTraining:
    """Return a panel of a metric for each of `COSTS`: what rows of `steps_frame` had spent.

    A gap has no curve of the baseline, of which it is 0.

    Raises:
        UserError: no such metric, or the rows are of the ends of runs alone.
    """
    rows = frame[frame["role"] == "trial"] if metric.startswith("gap/") else frame
    rows.attrs |= frame.attrs
    panels = [(COSTS[STEP], curves(rows, metric, STEP))]
    for cost in (TRAIN_IMAGES, DEVICE_HOURS):
        found = curves(rows, metric, STEP, cost=cost)
        against = tuple(replace(curve, x=curve.cost) for curve in found.curves)
        panels.append((COSTS[cost], replace(found, curves=against)))
    return OverTraining(tuple(panels), schedule_warning(frame))


def training_axis(frame: pd.DataFrame) -> str:
    """Return the column with training steps: of stages of runs, or of runs of several lengths."""
    return STEP if STEP in frame else STEPS


def schedule_warning(frame: pd.DataFrame) -> str:
    """Return why the stages of runs are no shorter runs; nothing for a constant rate."""
    schedules = frame.attrs.get("schedules", ()) if STEP in frame else ()
    falls = f" The rate falls to the end ({', '.join(schedules)}): an earlier step is no shorter"
    return f"{falls} run." if schedules else ""


def budget_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the metrics of quality of a sweep with several steps of training; else none."""
    axis = training_axis(frame)
    if axis not in frame or not _has_curves(frame, axis):
        return []
    return list(dict.fromkeys(metric.split(" ")[0] for metric in quality_metrics(frame)))


def _has_curves(frame: pd.DataFrame, axis: str) -> bool:
    """Whether a setting has several steps; a length that matching gives each cell is no curve."""
    settings = [a for a in frame.attrs.get("axes", ()) if a in frame and a not in (axis, SPEND)]
    groups = frame.groupby(settings or ["role"], dropna=False)
    return bool((groups[axis].nunique() > 1).any())


def stage_metrics(frame: pd.DataFrame) -> list[str]:
    """Return what is drawn of `training_frame`'s rows: gap and quality; nothing of ends alone."""
    if STEP not in frame:
        return []
    gap = [GAP_HELDOUT] if GAP_HELDOUT in frame and frame[GAP_HELDOUT].notna().any() else []
    return list(dict.fromkeys([*gap, *quality_metrics(frame)]))


def draw_over_training(
    found: Curves, ax: Axes, *, over: str = COSTS[STEP], title: str = "", legend: bool = True
) -> None:
    """Draw dense curves black and dashed, routes in colour; cells without a number are lettered.

    A gap has the line of its baseline at 0.
    """
    known = tuple(c for c in found.curves if np.isfinite(c.x).any())
    draw_curves(replace(found, curves=known), ax, legend=legend)
    if found.metric.startswith("gap/"):
        ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    ax.set_xlabel(over)
    ax.set_title(title)


def _title(column: str, metric: str) -> str:
    """Return how the images of a column were drawn: `guidance w = 2`, or as the column says."""
    setting = column.removeprefix(metric).strip()
    weight = setting.removeprefix("w=")
    plain = setting.startswith("w=") and " " not in setting
    return f"with guidance, $w$ = {weight}" if plain else setting


def caption(found: OverTraining) -> str:
    """Return the last value of every curve, panel by panel."""
    sentences = []
    for title, panel in found.panels:
        ends = [
            f"{routed(curve.name)} {_result(panel, curve, k)} at {curve.x[k]:.0f} steps"
            for curve, k in _ends(panel)
        ]
        if ends:
            sentences.append(f"{title.replace('$', '') or 'at the end'}: {', '.join(ends)}")
    return "; ".join(sentences) + "." + found.warning


def _result(panel: Curves, curve: Curve, k: int) -> str:
    return result(panel.metric, curve.value[k], curve.low[k], curve.high[k])


def costs_caption(found: OverTraining) -> str:
    """Return the last value of every curve with what it had spent, and what intervals are over."""
    (_, by_step), *_, (_, by_hours) = found.panels
    hours = {curve.name: curve.x for curve in by_hours.curves}
    sentences = []
    for curve, k in _ends(by_step):
        value = _result(by_step, curve, k)
        spent = hours[curve.name][k]
        price = f" ({quantity(spent, metric_kind(DEVICE_HOURS).unit)})"
        at = f"{value} at {curve.x[k]:.0f} steps{price if np.isfinite(spent) else ''}"
        sentences.append(f"{routed(curve.name)} {at}")
    over = f" Intervals: {by_step.measured_as}." if by_step.measured_as else ""
    return f"Last of each curve: {'; '.join(sentences)}.{over}{found.warning}"


def _ends(found: Curves) -> Iterator[tuple[Curve, int]]:
    """Yield the curves that have a number, and where their last one is."""
    for curve in found.curves:
        for k in np.flatnonzero(np.isfinite(curve.value))[-1:]:
            yield curve, int(k)


@figure_kind()
def by_guidance(records: SweepRecords) -> Iterator[Drawn]:
    """Quality over training"""
    for metric in budget_metrics(records.training):
        found = over_training(records.training, metric)
        if not found.measured:
            continue
        many = max(len(panel.curves) for _, panel in found.panels)
        width = PAGE if len(found.panels) > 1 else COLUMN
        fig, axes = figure(width=width, height=legend_height(many), columns=len(found.panels))
        for (title, panel), ax in zip(found.panels, axes):
            draw_over_training(panel, ax, title=title, legend=ax is axes[0])
        yield Drawn(named("over_training", metric), caption(found), fig, metric)


@figure_kind()
def by_cost(records: SweepRecords) -> Iterator[Drawn]:
    """Over steps, images and device-hours"""
    for metric in stage_metrics(records.training):
        found = over_costs(records.training, metric)
        if not found.measured:
            continue
        height = legend_height(len(found.panels[0][1].curves))
        fig, axes = figure(width=PAGE, height=height, columns=len(COSTS))
        for (over, panel), ax in zip(found.panels, axes):
            draw_over_training(panel, ax, over=over, legend=ax is axes[0])
            ax.locator_params(axis="x", nbins=5)
        for ax in axes[1:]:
            ax.set_ylabel("")
        busy = records.frame[disturbed(records.frame, TRAIN_SECONDS)]["cell"].unique()
        note = f" Other work on the machine disturbed the hours of {joined(busy)}."
        text = costs_caption(found) + note * bool(len(busy))
        yield Drawn(named("over_costs", metric), text, fig, metric)
