"""What the best cell costs beside dense, and what all runs of the sweep have cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.sentences import routed
from tread_lab.frames import cells_frame, disturbed, of_baseline, result_texts
from tread_lab.records.metric_names import TRAIN_FLOPS, TRAIN_SECONDS
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.specs.trials import STEPS
from tread_lab.specs.units import counted, duration, quantity, ratio

MATCH = "train_flops"
ASKS = f"A sweep with match: {MATCH} asks what dense reaches for the same training FLOPs."
DISTURBED = " (disturbed: other work ran beside them, so these times say nothing about the route)"


def price(frame: pd.DataFrame, plan: StoredPlan, best: pd.Series[Any]) -> str:
    """Return what the best cell costs beside dense, what asks for equal costs, and the whole cost.

    Args:
        best: the row of the best cell in `cells_frame`; it has a baseline.
    """
    if TRAIN_FLOPS not in frame:
        return ""
    trials = frame[(frame["role"] == "trial") & (frame["cell"] == best["cell"])]
    dense = frame[frame["run"].isin(trials["baseline"]) & (frame["role"] == "baseline")]
    if not np.isfinite(float(best[TRAIN_FLOPS])) or dense.empty:
        return ""
    own, baseline = cells_frame(trials), cells_frame(dense)
    if not _text(baseline, TRAIN_FLOPS):
        return ""
    asked = plan.match == MATCH or STEPS in plan.axes  # with that axis no plan may match
    beside = _beside_dense(frame, trials, own, baseline)
    return " ".join(filter(None, (beside, "" if asked else ASKS, _total(frame))))


def _beside_dense(
    frame: pd.DataFrame, trials: pd.DataFrame, own: pd.DataFrame, baseline: pd.DataFrame
) -> str:
    """Return FLOPs and time of a run of the cell and of its baseline, rows of `cells_frame`."""
    share = float((frame[TRAIN_FLOPS] / of_baseline(frame, TRAIN_FLOPS))[trials.index].mean())
    flops, of_dense = (_text(cell, TRAIN_FLOPS) for cell in (own, baseline))
    name = routed(str(trials["cell"].iloc[0]))
    text = f"Training {name} takes {flops}, {ratio(share)} times dense's {of_dense}"
    seconds, dense_seconds = (_text(cell, TRAIN_SECONDS) for cell in (own, baseline))
    if not (seconds and dense_seconds):
        return f"{text}."
    busy = DISTURBED if disturbed(frame, TRAIN_SECONDS)[trials.index].any() else ""
    return f"{text}, and {seconds} against dense's {dense_seconds}{busy}."


def _text(cell: pd.DataFrame, metric: str) -> str:
    """Return what tables show of the one row of `cells_frame`."""
    return result_texts(cell, metric)[0] if metric in cell else ""


def _total(frame: pd.DataFrame) -> str:
    """Return what all runs have cost; at a step before their end they have costs of their own."""
    runs = frame.drop_duplicates("run")
    if TRAIN_FLOPS not in runs or "at_step" in frame.attrs:
        return ""
    done = counted(int((runs["state"] == RunState.COMPLETED).sum()), "completed run")
    flops = quantity(float(runs[TRAIN_FLOPS].sum()), "FLOP")
    text = f"The {done} took {flops}"
    if TRAIN_SECONDS not in runs or not (seconds := float(runs[TRAIN_SECONDS].sum())):
        return f"{text}."
    return f"{text} and {duration(seconds)} of training, added up over runs that may overlap."
