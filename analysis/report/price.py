"""What the best cell costs beside dense, and what dense reaches for the same training FLOPs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.sentences import routed
from tread_lab.compare.intervals import t_interval
from tread_lab.frames import (
    STEP,
    cells_frame,
    disturbed,
    metric_number,
    of_baseline,
    over_text,
    plan_steps_frame,
    result_texts,
)
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import HELDOUT_LOSS, TRAIN_FLOPS, TRAIN_SECONDS
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.specs.signature import settings_signature
from tread_lab.specs.trials import STEPS
from tread_lab.specs.units import counted, duration, quantity, ratio

WARMUP = "train.warmup"
MATCHED = 0.01  # share by which costs may differ that whole steps make equal
DISTURBED = " (disturbed: other work ran beside them, so these times say nothing about the route)"


def price(lab: Lab, frame: pd.DataFrame, plan: StoredPlan, best: pd.Series[Any]) -> str:
    """Return what the best cell costs beside dense, what dense reaches for it, and the whole cost.

    Args:
        plan: names the steps at which dense runs were measured.
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
    curve = _dense_curve(lab, frame, plan, dense)
    parts = (
        _beside_dense(frame, trials, own, baseline),
        _dense_for_the_same(frame, trials, own, curve),
        _total(frame),
    )
    return " ".join(filter(None, parts))


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


def _dense_for_the_same(
    frame: pd.DataFrame, trials: pd.DataFrame, own: pd.DataFrame, curve: pd.DataFrame
) -> str:
    """Return what dense, a `_dense_curve`, reaches for the FLOPs of a cell, or what is unknown."""
    if not {TRAIN_FLOPS, HELDOUT_LOSS} <= set(curve):
        return ""
    curve = curve.dropna(subset=[TRAIN_FLOPS, HELDOUT_LOSS])
    if curve.empty:
        return ""
    flops = float(trials[TRAIN_FLOPS].mean())
    points = [_at_cost(rows, flops) for _, rows in curve.groupby("seed")]
    if None in points:
        return _unknown(frame, curve, flops)
    losses, steps, exact = (np.array(values) for values in zip(*filter(None, points)))
    reaches = f"{routed(str(trials['cell'].iloc[0]))} reaches {_text(own, HELDOUT_LOSS)}"
    about, between = ("", "") if exact.all() else ("about ", ", between its measurements")
    loss, low, high = t_interval(losses) if len(losses) > 1 else (losses[0], np.nan, np.nan)
    over = f" (95% over {over_text(len(losses), 'seeds')})" if len(losses) > 1 else ""
    reached = f"{about}{metric_number(HELDOUT_LOSS, loss, low, high)}{over}"
    at = f"at {about}step {round(float(steps.mean())):,}{between}"
    return (
        f"For the same training FLOPs dense reaches a held-out loss of {reached} {at}; {reaches}."
    )


def _at_cost(rows: pd.DataFrame, flops: float) -> tuple[float, float, bool] | None:
    """Return loss and step of one dense run at a cost, and whether it was measured there."""
    spent, loss, step = (
        rows.sort_values(TRAIN_FLOPS)[name].to_numpy(float)
        for name in (TRAIN_FLOPS, HELDOUT_LOSS, STEP)
    )
    near = int(np.abs(spent - flops).argmin())
    if abs(spent[near] - flops) <= MATCHED * flops:
        return float(loss[near]), float(step[near]), True
    if not spent[0] < flops < spent[-1]:
        return None
    return float(np.interp(flops, spent, loss)), float(np.interp(flops, spent, step)), False


def _unknown(frame: pd.DataFrame, curve: pd.DataFrame, flops: float) -> str:
    """Return why it cannot be said what dense reaches for so many FLOPs, and what asks it."""
    last = curve.sort_values(TRAIN_FLOPS).iloc[-1]
    step = round(flops / float(last[TRAIN_FLOPS]) * float(last[STEP]))
    if step > last[STEP]:
        why = f"it was trained for {int(last[STEP]):,} steps"
    elif reason := curve.attrs.get("follows_length", ""):
        why = f"under {reason} that step is no shorter run"
    else:
        why = "its held-out loss was not measured there"
    asks = "the same runs answer that at equal training FLOPs"
    if "at_step" not in frame.attrs:
        asks = "match: train_flops in the sweep file asks that"
    return (
        f"What dense reaches for the same training FLOPs, at step {step:,}, cannot be said:"
        f" {why}; {asks}."
    )


def _dense_curve(
    lab: Lab, frame: pd.DataFrame, plan: StoredPlan, dense: pd.DataFrame
) -> pd.DataFrame:
    """Return dense runs by step: their ends, and stages that are as shorter runs.

    These are `dense`, which serve the best cell, and baselines that differ from them in length
    alone.
    """
    dense = _of_any_length(frame, plan, dense)
    runs = set(dense["run"])
    trials = tuple(t for t in plan.trials if t.role == "baseline" and t.run in runs)
    reason = next(filter(None, map(plan.follows_length, trials)), "")
    if reason:
        curve = dense.assign(**{STEP: dense["steps_done"]})
    else:
        curve = plan_steps_frame(lab, replace(plan, trials=trials))
    curve.attrs["follows_length"] = reason
    return curve


def _of_any_length(frame: pd.DataFrame, plan: StoredPlan, dense: pd.DataFrame) -> pd.DataFrame:
    """Return the baselines whose settings and seeds are those of `dense`, but for their length.

    A warmup that no axis sets may follow the length.
    """
    length = (STEPS,) if WARMUP in plan.axes else (STEPS, WARMUP)
    settings = {
        trial.run: settings_signature(trial.spec, *length)
        for trial in plan.trials
        if trial.role == "baseline"
    }
    done = frame[(frame["role"] == "baseline") & (frame["state"] == RunState.COMPLETED)]
    alike = done["run"].map(settings).isin(dense["run"].map(settings))
    return done[alike & done["seed"].isin(dense["seed"])]
