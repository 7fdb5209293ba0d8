"""The ranking of cells: by what, in which order, and which of them have no baseline's result."""

from __future__ import annotations

import pandas as pd

from tread_lab.frames.cells import cells_frame
from tread_lab.frames.columns import own_metrics
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    HELDOUT_LOSS,
    lower_is_better,
    metric_kind,
)
from tread_lab.records.status import RunState, without_comparison


def ranking_key(frame: pd.DataFrame) -> str | None:
    """The metric that cells of `trials_frame`'s rows are ranked by, `None` before any is measured.

    The gap in held-out loss where all trials are compared with the same kind of baseline; held-out
    loss itself where there are several kinds, since a gap to another baseline is another scale; a
    metric of samples where neither was measured.
    """
    kinds = frame.loc[frame["role"] == "baseline", "cell"].nunique()
    first = (GAP_HELDOUT, HELDOUT_LOSS) if kinds == 1 else (HELDOUT_LOSS, GAP_HELDOUT)
    own = own_metrics(frame)
    samples = [column for column in own if "@" in column and ":" not in column]
    return next((c for c in (*first, *samples) if c in own and frame[c].notna().any()), None)


def ranking_caption(metric: str, comparison: str = "") -> str:
    """Return the caption of a ranking by `metric`, the same wherever a ranking is shown.

    Args:
        comparison: the question that differences answer, `frame.attrs["comparison"]`.
    """
    order = {1: "lower is better", -1: "higher is better", 0: "which is no measure of quality"}
    kind = order[metric_kind(metric).sign]
    question = f", {comparison}" if comparison else ""
    return f"ranked by {metric}, {kind}{question}; a row is a cell, its seeds averaged"


def ranked_cells(frame: pd.DataFrame, key: str | None) -> pd.DataFrame:
    """`cells_frame`, best first by `key`; a trial that is its baseline's own run is left out.

    A baseline's gap is 0 by definition. Cells without a number follow in plan order.
    """
    own = (frame["role"] == "trial") & (frame["run"] == frame["baseline"])
    cells = cells_frame(frame[~own])
    if key is None:
        return cells
    done = cells["state"] == RunState.COMPLETED
    if key == GAP_HELDOUT:
        cells[key] = cells[key].mask((cells["role"] == "baseline") & done, 0.0)
    order = cells[key].where(done)
    order = order.sort_values(ascending=lower_is_better(key), na_position="last", kind="stable")
    return cells.loc[order.index]


def without_baseline(frame: pd.DataFrame) -> list[str]:
    """A line for every baseline that ended without a result: its trials are compared with none."""
    baselines = frame[frame["run"].isin(frame["baseline"])].drop_duplicates("run")
    return [
        without_comparison(f"{row['cell']} seed {row['seed']}", RunState(row["state"]))
        for _, row in baselines.iterrows()
        if RunState(row["state"]).lacks_result
    ]
