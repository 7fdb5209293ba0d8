"""Curves over training (Fig. S9, DiT-B/2): over steps, images and device-hours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curves, curves, draw_curves
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named, quality_metrics
from tread_lab.analysis.figures.points import NUMBERS
from tread_lab.analysis.figures.style import COLUMN, PAGE, Axes, figure, legend_height
from tread_lab.frames import STEP, disturbed, joined, routed
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_IMAGES,
    TRAIN_SECONDS,
    metric_kind,
    value_text,
)
from tread_lab.specs.lengths import SPEND, STEPS
from tread_lab.specs.units import quantity

STEPS_AXIS, HOURS_AXIS = "training steps", "device-hours"
COSTS = {TRAIN_IMAGES: "training images", DEVICE_HOURS: HOURS_AXIS}


def over_training(frame: pd.DataFrame, metric: str) -> dict[str, Curves]:
    """Return curves of a metric over training steps, and over each cost that rows have.

    Of rows of `training_frame`; a point is a stage of one run, or a run of its own length. A gap
    has no curve of the baseline, of which it is 0.

    Raises:
        UserError: no such metric, or the sweep has no several steps of training.
    """
    rows = frame[frame["role"] == "trial"] if metric.startswith("gap/") else frame
    rows.attrs |= frame.attrs
    found = curves(rows, metric, training_axis(frame))
    panels = {STEPS_AXIS: found}
    for cost in (cost for cost in COSTS if cost in rows):
        spent = found.rows[cost].where(found.rows["value"].notna())
        panels[COSTS[cost]] = replace(found, rows=found.rows.assign(x=spent))
    return panels


def training_axis(frame: pd.DataFrame) -> str:
    """Return the column with training steps: of stages of runs, or of runs of several lengths."""
    return STEP if STEP in frame else STEPS


def training_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the gap and the metrics of quality of a sweep with several steps of training."""
    axis = training_axis(frame)
    if axis not in frame or not _has_curves(frame, axis):
        return []
    gap = [GAP_HELDOUT] if GAP_HELDOUT in frame and frame[GAP_HELDOUT].notna().any() else []
    return list(dict.fromkeys([*gap, *quality_metrics(frame)]))


def _has_curves(frame: pd.DataFrame, axis: str) -> bool:
    """Whether a setting has several steps; a length that matching gives each cell is no curve."""
    settings = [a for a in frame.attrs.get("axes", ()) if a in frame and a not in (axis, SPEND)]
    groups = frame.groupby(settings or ["role"], dropna=False)
    return bool((groups[axis].nunique() > 1).any())


def draw_over_training(found: Curves, ax: Axes, *, over: str, legend: bool = True) -> None:
    """Draw dense curves black and dashed, routes in colour; cells without a number are lettered.

    A gap has the line of its baseline at 0.
    """
    known = found.rows.groupby("curve")["x"].transform("count") > 0
    draw_curves(replace(found, rows=found.rows[known]), ax, legend=legend)
    if found.metric.startswith("gap/"):
        ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel(over)


def caption(panels: Mapping[str, Curves]) -> str:
    """Return the last value of every curve with what it had spent, and what intervals are over."""
    by_step = panels[STEPS_AXIS]
    hours = panels[HOURS_AXIS].rows["x"] if HOURS_AXIS in panels else pd.Series(dtype=float)
    sentences = []
    for k, end in by_step.measured.drop_duplicates("curve", keep="last").iterrows():
        value, spent = value_text(by_step.metric, *end[NUMBERS]), hours.get(k, np.nan)
        price = f" ({quantity(spent, metric_kind(DEVICE_HOURS).unit)})"
        at = f"{value} at {end['x']:.0f} steps{price if np.isfinite(spent) else ''}"
        sentences.append(f"{routed(end['curve'])} {at}")
    over = f" Intervals: {by_step.measured_as}." if by_step.measured_as else ""
    return f"Last of each curve: {'; '.join(sentences)}.{over}{by_step.warning}"


@figure_kind()
def growths(records: SweepRecords) -> Iterator[Drawn]:
    """Quality over training"""
    busy = records.frame[disturbed(records.frame, TRAIN_SECONDS)]["cell"].unique()
    for metric in training_metrics(records.training):
        panels = over_training(records.training, metric)
        if panels[STEPS_AXIS].measured.empty:
            continue
        several = len(panels) > 1
        height = legend_height(len(panels[STEPS_AXIS].curves))
        width = PAGE if several else COLUMN
        fig, axes = figure(width=width, height=height, columns=len(panels))
        for (over, panel), ax in zip(panels.items(), axes):
            draw_over_training(panel, ax, over=over, legend=ax is axes[0])
        for ax in axes[1:]:
            ax.set_ylabel("")
        note = f" Other work on the machine disturbed the hours of {joined(busy)}."
        text = caption(panels) + note * (several and len(busy) > 0)
        yield Drawn(named("over_training", metric), text, fig, metric)
