"""Quality over training, without and with guidance, a panel each (Fig. S9, DiT-B/2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curves, curves
from tread_lab.analysis.figures.style import (
    BLACK,
    CYCLE,
    Axes,
    arrow,
    label,
    mark_state,
    power_of_ten,
    state_legend,
    times,
)
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


def budgets(frame: pd.DataFrame) -> bool:
    """Whether the sweep trained the same settings for several numbers of steps."""
    return STEPS in frame and frame[STEPS].nunique() > 1


def over_training(frame: pd.DataFrame, metric: str) -> OverTraining:
    """The panels of one metric: its column, or all its columns that differ in how images are drawn.

    `fd[x]@1k` stands for `fd[x]@1k w=1` and `fd[x]@1k w=2` where both were measured.

    Raises:
        UserError: no such metric, or training steps are no axis of the sweep.
    """
    columns = variants(frame, metric) or [metric]
    panels = [(_title(column, metric), curves(frame, column, STEPS)) for column in columns]
    return OverTraining(tuple(panels))


def variants(frame: pd.DataFrame, metric: str) -> list[str]:
    """The sweep's own columns of a metric: itself, or one for every evaluation that measured it."""
    return [c for c in own_metrics(frame) if c.split(" ")[0] == metric and ":" not in c]


def draw_over_training(found: Curves, ax: Axes, *, title: str = "", legend: bool = True) -> None:
    """Dense black and dashed, routes in colour; cells without a number are lettered."""
    values = [v for curve in found.curves for v in (curve.value, curve.low, curve.high)]
    power = power_of_ten(np.concatenate([np.zeros(1), *values]))
    colours = iter(CYCLE * 9)
    states: list[str] = []
    for k, curve in enumerate(found.curves):
        value, low, high = (v / 10.0**power for v in (curve.value, curve.low, curve.high))
        spread = np.nan_to_num(np.stack([value - low, high - value]))
        known = np.isfinite(value)
        ax.errorbar(
            curve.x[known],
            value[known],
            spread[:, known],
            fmt="--D" if curve.dense else "-" + "os^vP"[k % 5],
            color=BLACK if curve.dense else next(colours),
            label=arrow(curve.name),
        )
        for x, state in zip(curve.x[~known], np.array(curve.states)[~known]):
            mark_state(ax, float(x), str(state))
            states.append(str(state))
    ax.set_xlabel("training steps")
    ax.set_ylabel(label(found.metric.split(" ")[0]) + times(power))
    ax.set_title(title)
    if legend:
        handles, _ = ax.get_legend_handles_labels()
        ax.legend(handles=[*handles, *state_legend(states)], loc="best")


def _title(column: str, metric: str) -> str:
    """How the images of a column were drawn: `guidance w = 2`, or as the column says."""
    told = column.removeprefix(metric).strip()
    weight = told.removeprefix("w=")
    if told.startswith("w=") and " " not in told:
        return "without guidance" if weight == "1" else f"with guidance, $w$ = {weight}"
    return told
