"""All cells of a sweep in one figure, whatever its axes: each one's gap and what it cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.placements import numbers_of
from tread_lab.frames import cells_frame, delta_column, of_baseline, require_metric, with_delta
from tread_lab.records.metric_names import FAMILY_FLOPS


def cell_gaps(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return every cell in plan order with its difference to the baseline, averaged over seeds.

    Columns: name, value, low and high of the difference (NaN where there is none), state, and
    flops: of training, those of runs that it descends from included, over the baseline's.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    known = FAMILY_FLOPS in frame
    ratio = frame[FAMILY_FLOPS] / of_baseline(frame, FAMILY_FLOPS) if known else np.nan
    trials = with_delta(frame, metric).assign(**{"cost/relative": ratio})
    cells = cells_frame(trials[trials["role"] == "trial"])
    numbers = dict(zip(("value", "low", "high", "state"), numbers_of(cells, delta_column(metric))))
    return pd.DataFrame({"name": cells["cell"], **numbers, "flops": cells["cost/relative"]})


def draw_cell_gaps(gaps: pd.DataFrame, metric: str, axes: list[style.Axes]) -> None:
    """Draw dots with intervals on the first axes, bars of relative cost on the second."""
    dots, bars = axes
    names = [style.arrow(name) for name in gaps["name"]]
    values = (gaps[column].to_numpy(float) for column in ("value", "low", "high"))
    style.draw_difference_rows(dots, delta_column(metric), names, *values)
    for k in np.flatnonzero(gaps["value"].isna()).tolist():
        look = style.STATE_LOOKS[gaps["state"].iloc[k]]
        dots.text(0, -k, f" {look.letter} {look.text}", color=style.GREY, va="center")
    bars.barh(-np.arange(len(names)), gaps["flops"].fillna(0), height=0.6, color=style.GREY)
    bars.axvline(1, color=style.BLACK, linewidth=0.7)
    bars.set_yticks([])
    bars.set_ylim(dots.get_ylim())
    bars.set_xlabel("training FLOPs relative to dense (1 = dense)")


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    frame = records.frame
    for metric in records.compared if records.panels > 1 else ():
        if frame[metric].notna().sum() > 1:
            gaps = cell_gaps(frame, metric)
            height = 1.0 + 0.18 * len(gaps)
            fig, axes = style.figure(width=style.PAGE, height=height, columns=2)
            draw_cell_gaps(gaps, metric, axes)
            caption = "Every cell of the sweep with its cost beside it; a dot is hollow where"
            caption += " its 95% interval holds zero."
            yield Drawn(named("cells", metric), caption, fig, metric)


CELLS = FigureKind("All cells of the sweep", _drawn, compares=True)
