"""One row per trial and step: what was measured during training, and what it had cost by then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tread_lab.frames.trials import SweepReader, sweep_plan
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_IMAGES,
    TRAIN_SECONDS,
)
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.cell import Tree, Trial
from tread_lab.specs.lengths import QUESTIONS
from tread_lab.specs.run import steps_alike

STEP = "step"  # the column, and an axis of the frame


def steps_frame(lab: Lab, sweep: str | SweepFolder) -> pd.DataFrame:
    """Return one row per trial and step at which it was measured, its end last, in plan order.

    The columns are those of `trials_frame` and `step`, which is one more axis. Metrics are those of
    the EMA weights of that step under the names that they have at the end; gaps are to the baseline
    at the same step. `cost/train_flops`, `cost/train_seconds`, `cost/device_hours` and
    `cost/train_images` are the run's share up to the step; where routes are on in a part of the
    steps, time and FLOPs are known of the end alone. A trial that is not completed has one row
    without a step. `frame.attrs["schedules"]` lists the schedules by which rates fall to
    the end: under them an earlier step is no shorter run.

    Raises:
        UserError: no such sweep.
    """
    return plan_steps_frame(lab, sweep_plan(lab, sweep))


def plan_steps_frame(lab: Lab, plan: StoredPlan) -> pd.DataFrame:
    """Return `steps_frame` of a plan that was read already, or of some of its trials."""
    reader = SweepReader(lab, plan)
    reader.read_gaps()
    frame = reader.frame([row for trial in reader.plan.trials for row in _rows(reader, trial)])
    frame[STEP] = frame[STEP].astype("Int64")
    frame.attrs["axes"] = [*frame.attrs["axes"], STEP]
    schedules = {str(trial.spec["train"].get("schedule")) for trial in reader.plan.trials}
    frame.attrs["schedules"] = sorted(schedules - {"constant"})
    return frame


def equal_steps_frame(lab: Lab, sweep: str | SweepFolder) -> pd.DataFrame | None:
    """Return the rows of `trials_frame` with each run at the step at which its baseline ends.

    These answer at equal steps what a sweep with `match` asks at equal cost, from the same runs. It
    is `None` for other sweeps, and where no run was measured so or a stage is no shorter run.
    `frame.attrs["at_step"]` has the step of each run that goes on.

    Raises:
        UserError: no such sweep.
    """
    plan = sweep_plan(lab, sweep)
    if plan.match is None:
        return None
    reader = SweepReader(lab, plan)
    ends = {trial.run: trial.steps for trial in plan.trials}
    at_step = {trial.run: ends[trial.baseline or trial.run] for trial in plan.trials}
    frame = reader.frame([_row_at(reader, trial, at_step[trial.run]) for trial in plan.trials])
    before = {run: step for run, step in at_step.items() if step != ends[run]}
    frame.attrs |= {"comparison": QUESTIONS[None], "at_step": before}
    trials = frame[frame["role"] == "trial"]
    return frame if GAP_HELDOUT in frame and trials[GAP_HELDOUT].notna().any() else None


def _row_at(reader: SweepReader, trial: Trial[Tree], step: int) -> dict[str, Any]:
    """Return the row of a trial at one step; without numbers where it was not measured there."""
    whole = reader.row(trial)
    row = next((row for row in _rows(reader, trial) if row[STEP] == step), whole)
    settings = {name: x for name, x in whole.items() if "/" not in name and "@" not in name}
    measured = {} if row is whole else row
    return {name: x for name, x in {**measured, **settings}.items() if name != STEP}


def training_frame(lab: Lab, sweep: str | SweepFolder, trials: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of curves over training: stages of runs, else runs of several lengths.

    These are `steps_frame`'s where a run was measured before its end, and `trials` else, or where
    the one other step is that at which the baselines of a sweep with `match` end.
    """
    plan = sweep_plan(lab, sweep)
    stages = {tree.get("step") for tree in plan.evaluate} - {None}
    if plan.match is not None and stages <= {trial.steps for trial in plan.trials}:
        return trials
    steps = plan_steps_frame(lab, plan)
    return steps if is_measured_during_training(steps) else trials


def is_measured_during_training(frame: pd.DataFrame) -> bool:
    """Return whether any run of `steps_frame`'s rows has numbers of several steps."""
    return bool((frame.groupby("run")[STEP].nunique() > 1).any())


def _rows(reader: SweepReader, trial: Trial[Tree]) -> Iterator[dict[str, Any]]:
    whole = reader.row(trial)
    if whole["state"] is not RunState.COMPLETED:
        yield {**whole, STEP: None}
        return
    steps, batch, alike = trial.steps, int(trial.spec["train"]["batch"]), steps_alike(trial.spec)
    settings = {name: x for name, x in whole.items() if "/" not in name and "@" not in name}
    at_end = {name: x for name, x in whole.items() if name not in settings}
    for step, values in {**reader.measured_at(trial), steps: at_end}.items():
        share = step / max(steps, 1)
        known = (TRAIN_FLOPS, TRAIN_SECONDS) if alike or step == steps else ()
        spent = {n: share * at_end[n] for n in known if n in at_end}
        if TRAIN_SECONDS in spent:
            spent[DEVICE_HOURS] = reader.devices(trial) * spent[TRAIN_SECONDS] / 3600
        label = f"{whole['cell']} {STEP}={step}"
        cost = {**spent, TRAIN_IMAGES: float(step * batch)}
        yield {**settings, "cell": label, STEP: step, **values, **cost}
