"""All cells of a sweep in one figure, whatever its axes: each one's gap and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.loss_gap import GapOverSteps
from tread_lab.analysis.figures.placements import states_without_numbers
from tread_lab.analysis.figures.style import (
    BLACK,
    CYCLE,
    GREY,
    STATE_LOOKS,
    Axes,
    arrow,
    label,
    power_of_ten,
    times,
)
from tread_lab.frames import HIGH, LOW, cells_frame, delta_column, require_metric, with_delta
from tread_lab.records.metric_names import FAMILY_FLOPS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CellGaps:
    """The cells in plan order.

    Attributes:
        names: the axis values of every cell.
        groups: number of the cell's value on the first axis, for its colour.
        value, low, high: difference to the baseline and its interval, NaN where there is none.
        flops: training FLOPs, those of runs it descends from included, over the baseline's.
        states: how the cell ended.
    """

    metric: str
    names: tuple[str, ...]
    groups: NDArray[np.int64]
    value: Array
    low: Array
    high: Array
    flops: Array
    states: tuple[str, ...]


def cell_gaps(frame: pd.DataFrame, metric: str) -> CellGaps:
    """Every cell with its difference to the baseline, averaged over seeds.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    column = delta_column(metric)
    trials = _with_relative_flops(with_delta(frame, metric))
    cells = cells_frame(trials[trials["role"] == "trial"])
    axes = [axis for axis in frame.attrs.get("axes", ()) if cells[axis].nunique() > 1] or ["route"]
    done = (cells["state"] == "completed").to_numpy()
    value, low, high = (
        np.where(done, cells[name].to_numpy(float), np.nan) for name in _ends(cells, column)
    )
    return CellGaps(
        metric=metric,
        names=tuple(cells["cell"]),
        groups=pd.factorize(cells[axes[0]])[0].astype(np.int64),
        value=value,
        low=low,
        high=high,
        flops=cells["cost/relative"].to_numpy(float),
        states=tuple(cells["state"].where(np.isfinite(value), states_without_numbers(cells))),
    )


def draw_cell_gaps(gaps: CellGaps, axes: list[Axes]) -> None:
    """Dots with intervals on the first axes, bars of relative cost on the second."""
    dots, bars = axes
    power = power_of_ten(np.concatenate([gaps.value, gaps.low, gaps.high]))
    places = -np.arange(len(gaps.names))
    dots.axvline(0, color=BLACK, linewidth=0.7)
    for y, group, state, *numbers in zip(
        places, gaps.groups, gaps.states, gaps.value, gaps.low, gaps.high
    ):
        colour = CYCLE[group % len(CYCLE)]
        value, low, high = (number / 10.0**power for number in numbers)
        if np.isfinite(value):
            spread = np.nan_to_num([[value - low], [high - value]])
            dots.errorbar([value], [y], xerr=spread, marker="o", color=colour)
        else:
            look = STATE_LOOKS[state if state in STATE_LOOKS else "unmeasured"]
            dots.text(0, y, f" {look.letter} {look.text}", color=GREY, va="center")
    dots.set_yticks(places, [arrow(name) for name in gaps.names])
    dots.set_xlabel(label(delta_column(gaps.metric)) + times(power))
    colours = [CYCLE[group % len(CYCLE)] for group in gaps.groups]
    bars.barh(places, np.nan_to_num(gaps.flops), height=0.6, color=colours)
    bars.axvline(1, color=BLACK, linewidth=0.7)
    bars.set_yticks([])
    for ax in axes:
        ax.set_ylim(0.5 - len(gaps.names), 0.5)
    bars.set_xlabel("training FLOPs / baseline's")


def draw_named_gaps(gaps: GapOverSteps, ax: Axes) -> None:
    """One line a cell, told apart by colour and, past the colours, by dashes."""
    power = power_of_ten(np.concatenate([np.zeros(1), *gaps.gaps]))
    ax.axhline(0, color=BLACK, linewidth=0.7)
    for k, (name, steps, values) in enumerate(zip(gaps.names, gaps.steps, gaps.gaps)):
        dashes = ("-", "--", ":", "-.")[k // len(CYCLE) % 4]
        colour = CYCLE[k % len(CYCLE)]
        ax.plot(steps, values / 10.0**power, dashes, color=colour, linewidth=0.9, label=arrow(name))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), labelspacing=0.25)
    ax.set_title(f"paired differences, smoothed over {gaps.halflife:g} logged entries")
    ax.set_xlabel("training step")
    ax.set_ylabel("Δ training loss" + times(power))


def with_the_baselines_loss(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows whose training loss may be compared with their baseline's: it is the same loss."""
    losses = frame.drop_duplicates("run").set_index("run")["loss"].fillna("")
    baseline = frame["baseline"].map(losses)
    return frame[baseline.isna() | (baseline == frame["loss"].fillna(""))]


def _ends(cells: pd.DataFrame, column: str) -> list[str]:
    """The columns of value and interval; without an interval the value itself."""
    return [name if name in cells else column for name in (column, column + LOW, column + HIGH)]


def _with_relative_flops(frame: pd.DataFrame) -> pd.DataFrame:
    if FAMILY_FLOPS not in frame:
        return frame.assign(**{"cost/relative": np.nan})
    flops = frame.drop_duplicates("run").set_index("run")[FAMILY_FLOPS]
    baseline = frame["baseline"].map(flops).astype(float)
    return frame.assign(**{"cost/relative": frame[FAMILY_FLOPS] / baseline})
