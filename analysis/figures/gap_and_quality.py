"""Does the training-loss gap predict the quality of samples? One point per route (Fig. S10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, sample_metrics
from tread_lab.analysis.figures.placements import Placements, placements, rank_correlation
from tread_lab.analysis.figures.sentences import number, trend
from tread_lab.records.metric_names import GAP_TRAIN


@dataclass(frozen=True)
class GapAndQuality:
    """Two differences to the baseline of every route that has both, in one order.

    Attributes:
        gap, quality: `gap/train` and the quality.
        rank_correlation: Spearman's; NaN below three routes.
    """

    gap: Placements
    quality: Placements
    rank_correlation: float


def gap_and_quality(frame: pd.DataFrame, metric: str) -> GapAndQuality:
    """Return the routes of `trials_frame`'s rows that completed with both numbers.

    Raises:
        UserError: no such metric, or several cells share a route.
    """
    gap, quality = placements(frame, GAP_TRAIN), placements(frame, metric)
    both = gap.measured & quality.measured  # in plan order, both of them
    gap, quality = gap.take(both), quality.take(both)
    return GapAndQuality(gap, quality, rank_correlation(gap.value, quality.value)[0])


def draw_gap_and_quality(found: GapAndQuality, ax: style.Axes) -> None:
    """Draw points coloured by length, the baseline at the crossing of the two lines."""
    gap, quality = found.gap, found.quality
    power_x, x, spread_x = style.scaled(gap.value, gap.low, gap.high)
    power_y, y, spread_y = style.scaled(quality.value, quality.low, quality.high)
    ax.axhline(0, color=style.BLACK, linewidth=0.5)
    ax.axvline(0, color=style.BLACK, linewidth=0.5)
    ax.errorbar(x, y, spread_y, spread_x, fmt="none", ecolor="#B0B0B0", elinewidth=0.6, capsize=0)
    norm = style.Normalize(min(gap.length, default=0), max(gap.length, default=1))
    points = ax.scatter(x, y, c=gap.length, cmap=style.SEQUENTIAL, norm=norm, s=16, zorder=3)
    style.colour_bar(ax, points, "blocks skipped")
    correlation = found.rank_correlation
    ax.set_title(f"rank correlation {number(correlation)}" if np.isfinite(correlation) else "")
    ax.set_xlabel(style.label(gap.metric) + style.times(power_x))
    ax.set_ylabel(style.label(quality.metric) + style.times(power_y))


def caption(found: GapAndQuality) -> str:
    """Return whether the loss gap predicts the quality of the samples."""
    if not np.isfinite(found.rank_correlation):
        return "Too few routes have both numbers."
    return (
        f"Rank correlation over {len(found.gap.routes)} routes: {number(found.rank_correlation)};"
        f" {trend(found.rank_correlation, 'a larger loss gap goes with worse samples')}."
    )


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric in sample_metrics(records.frame) if GAP_TRAIN in records.frame else ():
        found = gap_and_quality(records.frame, metric)
        if len(found.gap.routes) > 2:
            fig, (ax,) = style.figure(height=2.2)
            draw_gap_and_quality(found, ax)
            yield Drawn(named("gap_and_quality", metric), caption(found), fig, metric)


GAP_AND_QUALITY = FigureKind(
    "Loss gap and quality of samples", _drawn, each_panel=True, compares=True
)
