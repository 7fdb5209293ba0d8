"""Does the training-loss gap foretell the quality of samples? One point a route (Fig. S10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.placements import measured_as, placements
from tread_lab.analysis.figures.style import (
    BLACK,
    MINUS,
    SEQUENTIAL,
    Axes,
    Normalize,
    label,
    power_of_ten,
    times,
)
from tread_lab.frames import delta_column
from tread_lab.records.metric_names import GAP_TRAIN

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GapAndQuality:
    """Two differences to the baseline of every route that has both.

    Attributes:
        metric: the quality; a difference, so the baseline is 0.
        routes: (start, end).
        length: blocks skipped.
        gap, value: `gap/train` and the quality.
        gap_ends, value_ends: [2, routes], the ends of their intervals.
        rank_correlation: Spearman's; NaN below three routes.
        measured_as: what the intervals of the quality are over.
    """

    metric: str
    routes: tuple[tuple[int, int], ...]
    length: NDArray[np.int64]
    gap: Array
    value: Array
    gap_ends: Array
    value_ends: Array
    rank_correlation: float
    measured_as: str


def gap_and_quality(frame: pd.DataFrame, metric: str, *, gap: str = GAP_TRAIN) -> GapAndQuality:
    """The routes of `trials_frame`'s rows that completed with both numbers.

    Raises:
        UserError: no such metric, or several cells share a route.
    """
    keys = ["start", "end", "length"]
    left = placements(frame, gap)
    right = placements(frame, metric)
    both = left.merge(right, on=keys, suffixes=("_gap", ""))
    both = both[both["value_gap"].notna() & both["value"].notna()]
    correlation = float("nan")
    if len(both) >= 3:
        correlation = float(both["value_gap"].rank().corr(both["value"].rank()))
    return GapAndQuality(
        metric=delta_column(metric),
        routes=tuple(zip(both["start"], both["end"])),
        length=both["length"].to_numpy(),
        gap=both["value_gap"].to_numpy(float),
        value=both["value"].to_numpy(float),
        gap_ends=both[["low_gap", "high_gap"]].to_numpy(float).T,
        value_ends=both[["low", "high"]].to_numpy(float).T,
        rank_correlation=correlation,
        measured_as=measured_as(both),
    )


def draw_gap_and_quality(found: GapAndQuality, ax: Axes) -> None:
    """Points coloured by length, the baseline at the crossing of the two lines."""
    scale_x, scale_y = power_of_ten(found.gap), power_of_ten(found.value)
    x, y = found.gap / 10.0**scale_x, found.value / 10.0**scale_y
    ax.axhline(0, color=BLACK, linewidth=0.5)
    ax.axvline(0, color=BLACK, linewidth=0.5)
    ends = (found.gap_ends / 10.0**scale_x, found.value_ends / 10.0**scale_y)
    spread_x, spread_y = (np.nan_to_num(np.abs(e - v)) for e, v in zip(ends, (x, y)))
    ax.errorbar(x, y, spread_y, spread_x, fmt="none", ecolor="#B0B0B0", elinewidth=0.6, capsize=0)
    low, high = (int(f(found.length)) for f in (np.min, np.max)) if len(x) else (0, 1)
    points = ax.scatter(
        x, y, c=found.length, cmap=SEQUENTIAL, norm=Normalize(low, high), s=16, zorder=3
    )
    bar = ax.figure.colorbar(points, ax=ax, pad=0.02, aspect=28)
    bar.outline.set_visible(False)
    bar.set_label("blocks skipped")
    told = found.rank_correlation
    correlation = f"{told:.2f}".replace("-", MINUS)
    ax.set_title(f"rank correlation {correlation}" if np.isfinite(told) else "")
    ax.set_xlabel("Δ held-out loss, routed" + times(scale_x))
    ax.set_ylabel(label(found.metric) + times(scale_y))
