"""Quality, and the gap to dense, over steps, images and device-hours of training, a panel each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curves, curves, draw_curves
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, quality_metrics
from tread_lab.analysis.figures.over_training import schedule_warning
from tread_lab.analysis.figures.sentences import joined, number, quantity, routed
from tread_lab.analysis.figures.style import PAGE, Axes, figure
from tread_lab.frames import STEP, disturbed
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_IMAGES,
    TRAIN_SECONDS,
    metric_kind,
)

COSTS = {STEP: "training steps", TRAIN_IMAGES: "training images", DEVICE_HOURS: "device-hours"}


@dataclass(frozen=True)
class OverCosts:
    """The curves of one metric against each of `COSTS`.

    Attributes:
        panels: by cost; `x` of a curve is what was spent by then, averaged over seeds.
        warning: why stages of runs stand in for no shorter runs; empty where they do.
    """

    metric: str
    panels: dict[str, Curves]
    warning: str = ""


def over_costs(frame: pd.DataFrame, metric: str) -> OverCosts:
    """Return the curves of a metric over what training had spent, from rows of `steps_frame`.

    A gap has no curve of the baseline, of which it is 0.

    Raises:
        UserError: no such metric, or the rows are of the ends of runs alone.
    """
    rows = frame[frame["role"] == "trial"] if metric.startswith("gap/") else frame
    rows.attrs |= frame.attrs
    panels = {STEP: curves(rows, metric, STEP)}
    for cost in (TRAIN_IMAGES, DEVICE_HOURS):
        found = curves(rows, metric, STEP, cost=cost)
        against = tuple(replace(curve, x=curve.cost) for curve in found.curves)
        panels[cost] = replace(found, curves=against)
    return OverCosts(metric, panels, schedule_warning(frame))


def shown_metrics(frame: pd.DataFrame) -> list[str]:
    """Return what is drawn of `training_frame`'s rows: gap and quality; nothing of ends alone."""
    if STEP not in frame:
        return []
    gap = [GAP_HELDOUT] if GAP_HELDOUT in frame and frame[GAP_HELDOUT].notna().any() else []
    return list(dict.fromkeys([*gap, *quality_metrics(frame)]))


def draw_over_costs(found: Curves, ax: Axes, *, cost: str, legend: bool = True) -> None:
    """Draw curves against one cost; a gap has the line of its baseline at 0."""
    known = tuple(c for c in found.curves if np.isfinite(c.x).any())
    draw_curves(replace(found, curves=known), ax, legend=legend)
    if found.metric.startswith("gap/"):
        ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    ax.set_xlabel(COSTS[cost])
    ax.locator_params(axis="x", nbins=5)


def caption(found: OverCosts) -> str:
    """Return the last value of every curve with what it had spent, and what intervals are over."""
    sentences = []
    for by_step, by_hours in zip(found.panels[STEP].curves, found.panels[DEVICE_HOURS].curves):
        for k in np.flatnonzero(np.isfinite(by_step.value))[-1:]:
            value = number(by_step.value[k], signed=found.metric.startswith("gap/"))
            hours = quantity(by_hours.x[k], metric_kind(DEVICE_HOURS).unit)
            spent = f" ({hours})" if np.isfinite(by_hours.x[k]) else ""
            at = f"{value} at {by_step.x[k]:.0f} steps{spent}"
            sentences.append(f"{routed(by_step.name)} {at}")
    measured_as = found.panels[STEP].measured_as
    interval = f" Intervals: {measured_as}." if measured_as else ""
    return f"Last of each curve: {'; '.join(sentences)}.{interval}{found.warning}"


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric in shown_metrics(records.training):
        found = over_costs(records.training, metric)
        fig, axes = figure(width=PAGE, height=2.3, columns=len(COSTS))
        for k, (cost, ax) in enumerate(zip(COSTS, axes)):
            draw_over_costs(found.panels[cost], ax, cost=cost, legend=k == 0)
            if k:
                ax.set_ylabel("")
        busy = records.frame[disturbed(records.frame, TRAIN_SECONDS)]["cell"].unique()
        note = f" Other work on the machine disturbed the hours of {joined(busy)}."
        text = caption(found) + note * bool(len(busy))
        yield Drawn(named("over_costs", metric), text, fig, metric)


OVER_COSTS = FigureKind("Over steps, images and device-hours", _drawn)
