"""All cells of a sweep in one figure, whatever its axes: each one's gap and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, sample_metrics
from tread_lab.analysis.figures.placements import Array, states_without_numbers
from tread_lab.analysis.figures.style import Axes
from tread_lab.frames import (
    HIGH,
    LOW,
    cells_frame,
    delta_column,
    of_baseline,
    require_metric,
    with_delta,
)
from tread_lab.records.metric_names import FAMILY_FLOPS, GAP_HELDOUT


@dataclass(frozen=True)
class CellGaps:
    """The cells in plan order.

    Attributes:
        names: the axis values of every cell.
        value, low, high: difference to the baseline and its interval, NaN where there is none.
        flops: training FLOPs, those of runs it descends from included, over the baseline's.
        states: how the cell ended.
    """

    metric: str
    names: tuple[str, ...]
    value: Array
    low: Array
    high: Array
    flops: Array
    states: tuple[str, ...]


def cell_gaps(frame: pd.DataFrame, metric: str) -> CellGaps:
    """Return every cell with its difference to the baseline, averaged over seeds.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    column = delta_column(metric)
    trials = _with_relative_flops(with_delta(frame, metric))
    cells = cells_frame(trials[trials["role"] == "trial"])
    done = cells["state"] == "completed"
    value, low, high = (
        cells[name].where(done).to_numpy(float) for name in (column, column + LOW, column + HIGH)
    )
    return CellGaps(
        metric=column,
        names=tuple(cells["cell"]),
        value=value,
        low=low,
        high=high,
        flops=cells["cost/relative"].to_numpy(float),
        states=tuple(cells["state"].where(np.isfinite(value), states_without_numbers(cells))),
    )


def draw_cell_gaps(gaps: CellGaps, axes: list[Axes]) -> None:
    """Draw dots with intervals on the first axes, bars of relative cost on the second.

    Blue is better than the baseline, orange worse; a dot is hollow where its interval holds zero.
    """
    dots, bars = axes
    power, values, spread = style.scaled(gaps.value, gaps.low, gaps.high)
    places = -np.arange(float(len(gaps.names)))
    undecided = style.holds_zero(gaps.low, gaps.high)
    dots.axvline(0, color=style.BLACK, linewidth=0.7)
    for k, (y, value) in enumerate(zip(places, values)):
        if np.isfinite(value):
            colour = style.difference_colour(gaps.metric, value)
            fill = "white" if undecided[k] else colour
            bar = spread[:, k : k + 1]
            dots.errorbar([value], [y], xerr=bar, marker="o", color=colour, markerfacecolor=fill)
        else:
            look = style.STATE_LOOKS[gaps.states[k]]
            dots.text(0, y, f" {look.letter} {look.text}", color=style.GREY, va="center")
    dots.set_yticks(places, [style.arrow(name) for name in gaps.names])
    dots.set_xlabel(style.label(gaps.metric) + style.times(power))
    bars.barh(places, np.nan_to_num(gaps.flops), height=0.6, color=style.GREY)
    bars.axvline(1, color=style.BLACK, linewidth=0.7)
    bars.set_yticks([])
    for ax in axes:
        ax.set_ylim(0.5 - len(gaps.names), 0.5)
    bars.set_xlabel("training FLOPs relative to dense (1 = dense)")


def _with_relative_flops(frame: pd.DataFrame) -> pd.DataFrame:
    if FAMILY_FLOPS not in frame:
        return frame.assign(**{"cost/relative": np.nan})
    ratio = frame[FAMILY_FLOPS] / of_baseline(frame, FAMILY_FLOPS)
    return frame.assign(**{"cost/relative": ratio})


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    frame = records.frame
    for metric in (GAP_HELDOUT, *sample_metrics(records.frame)):
        if records.panels > 1 and metric in frame and frame[metric].notna().sum() > 1:
            gaps = cell_gaps(frame, metric)
            fig, axes = style.figure(
                width=style.PAGE, height=1.0 + 0.18 * len(gaps.names), columns=2
            )
            draw_cell_gaps(gaps, axes)
            caption = "Every cell of the sweep with its cost beside it; a dot is hollow where"
            caption += " its 95% interval holds zero."
            yield Drawn(named("cells", metric), caption, fig, metric)


CELLS = FigureKind("All cells of the sweep", _drawn)
