"""All cells of a sweep in one figure, whatever its axes: each one's gap and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.placements import Array, numbers_of
from tread_lab.frames import cells_frame, delta_column, of_baseline, require_metric, with_delta
from tread_lab.records.metric_names import FAMILY_FLOPS


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
    value, low, high, states = numbers_of(cells, column)
    return CellGaps(
        metric=column,
        names=tuple(cells["cell"]),
        value=value,
        low=low,
        high=high,
        flops=cells["cost/relative"].to_numpy(float),
        states=tuple(states.tolist()),
    )


def draw_cell_gaps(gaps: CellGaps, axes: list[style.Axes]) -> None:
    """Draw dots with intervals on the first axes, bars of relative cost on the second."""
    dots, bars = axes
    names = [style.arrow(name) for name in gaps.names]
    style.draw_difference_rows(dots, gaps.metric, names, gaps.value, gaps.low, gaps.high)
    for k in np.flatnonzero(np.isnan(gaps.value)).tolist():
        look = style.STATE_LOOKS[gaps.states[k]]
        dots.text(0, -k, f" {look.letter} {look.text}", color=style.GREY, va="center")
    bars.barh(-np.arange(len(names)), np.nan_to_num(gaps.flops), height=0.6, color=style.GREY)
    bars.axvline(1, color=style.BLACK, linewidth=0.7)
    bars.set_yticks([])
    bars.set_ylim(dots.get_ylim())
    bars.set_xlabel("training FLOPs relative to dense (1 = dense)")


def _with_relative_flops(frame: pd.DataFrame) -> pd.DataFrame:
    if FAMILY_FLOPS not in frame:
        return frame.assign(**{"cost/relative": np.nan})
    ratio = frame[FAMILY_FLOPS] / of_baseline(frame, FAMILY_FLOPS)
    return frame.assign(**{"cost/relative": ratio})


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    frame = records.frame
    for metric in records.compared if records.panels > 1 else ():
        if frame[metric].notna().sum() > 1:
            gaps = cell_gaps(frame, metric)
            height = 1.0 + 0.18 * len(gaps.names)
            fig, axes = style.figure(width=style.PAGE, height=height, columns=2)
            draw_cell_gaps(gaps, axes)
            caption = "Every cell of the sweep with its cost beside it; a dot is hollow where"
            caption += " its 95% interval holds zero."
            yield Drawn(named("cells", metric), caption, fig, metric)


CELLS = FigureKind("All cells of the sweep", _drawn, compares=True)
