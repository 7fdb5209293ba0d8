"""Early stopping: judged by paired losses, shown as stopped, taken up where all is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pretender import Pretender, ended_run
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.engine.checkpoint import Checkpoint, save
from tread_lab.frames import trials_frame
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Stopped
from tread_lab.specs import UserError
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import EarlyStopping
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import store_plan


def planned(name: str = "halved", **more: Any) -> Plan:
    early = {"grace": 10, "reduction": 2}
    tree = {"axes": {"route": {"start": 0, "end": "0..7"}}, "stop_early": early, **more}
    return plan_of(tiny(steps=60, model=DEEP), name, **tree)


def logged(lab: Lab, run: str, slope: float, steps: int = 60) -> None:
    with lab.run(run).log() as log:
        for step in range(5, steps + 1, 5):
            log(step, **{"train/loss": 1.0 + slope * step / 60})


def saved(lab: Lab, run: str, step: int) -> None:
    """Give a run a checkpoint."""
    save(lab.run(run).checkpoints, Checkpoint(step, {}, {}), keep=1)


def test_runs_of_several_lengths_are_judged_at_equal_steps(lab: Lab) -> None:
    axes = {"route": ["0->1"], "train.steps": [90, 270]}
    early = EarlyStopping.of(planned(axes=axes, stop_early="asha"), lab)
    assert early is not None
    assert {early.rungs(run) for run in early.judged} == {(10, 30), (10, 30, 90)}
    assert early.gap(next(iter(early.judged)), 10) is None  # it has logged nothing


def test_gaps_of_several_losses_are_refused(lab: Lab) -> None:
    ensemble = {"kind": "ensemble", "weight": 0.1}
    axes = {"route": ["0->1", "0->2"], "loss": ["plain", ensemble]}
    with pytest.raises(UserError, match=r"compare: a loss less itself, equation 0\.1 less plain; "):
        EarlyStopping.of(planned(axes=axes), lab)
    assert EarlyStopping.of(planned(fixed={"loss": ensemble}), lab)
    plan = planned(axes=axes)
    for trial in plan.trials[:-1]:
        ended_run(lab, trial.spec, step=60, metrics={})
    with pytest.raises(UserError, match="do not compare"):
        EarlyStopping.of(plan, lab)
    lab.sweep(plan.name).add_stopped(Stopped(plan.trials[-1].run, 20, "others are better"))
    assert EarlyStopping.of(plan, lab), "an earlier version has judged all"
    with pytest.raises(UserError, match="do not compare"):
        EarlyStopping.of(plan, lab, again=[plan.trials[-2].run])


def test_a_rung_without_a_logged_loss_in_its_second_half_is_refused(lab: Lab) -> None:
    fixed = {"execution": {"log_every": 25}}
    line = (
        r"stop_early: judges at step 20, and execution\.log_every=25 logs no loss in the half"
        r" before it; log more often, or write stop_early\.grace=25"
    )
    with pytest.raises(UserError, match=line):
        EarlyStopping.of(planned(fixed=fixed, stop_early={"grace": 20}), lab)
    assert EarlyStopping.of(planned(fixed=fixed, stop_early={"grace": 25, "reduction": 2}), lab)


def test_a_grace_beyond_the_end_of_all_runs_is_refused(lab: Lab) -> None:
    line = (
        r"^stop_early\.grace: must be at most 30 \(steps / reduction of the longest run\), got 31"
    )
    with pytest.raises(UserError, match=line):
        EarlyStopping.of(planned(stop_early={"grace": 31, "reduction": 2}), lab)
    assert EarlyStopping.of(planned(stop_early={"grace": 30, "reduction": 2}), lab)
    only_dense = replace(planned(), trials=planned().trials[:1])
    assert EarlyStopping.of(only_dense, lab) is None


def test_only_trials_that_nothing_is_compared_with_or_starts_from_are_judged(lab: Lab) -> None:
    plan = planned()
    dense, *others = plan.trials
    as_trial = replace(plan, trials=(replace(dense, role="trial"), *others))
    alone = replace(plan, trials=tuple(replace(trial, baseline=None) for trial in plan.trials))
    for made, baseline in ((as_trial, dense.run), (alone, None)):
        early = EarlyStopping.of(made, lab)
        assert early is not None
        assert early.judged == {trial.run: (60, baseline) for trial in others}
    assert EarlyStopping.of(planned(stop_early=None), lab) is None
    family = {"then": {"none": {}, "dense": {"then": {"routes": [], "train": {"steps": 30}}}}}
    plan = planned(axes={"route": ["0->1"]}, variants=family)
    early = EarlyStopping.of(plan, lab)
    (child,) = (trial for trial in plan.trials if trial.role == "trial" and trial.spec.parent)
    assert early is not None and list(early.judged) == [child.run]


def test_a_new_session_knows_the_gaps_of_ended_stopped_and_interrupted_runs(lab: Lab) -> None:
    plan = planned()
    dense, interrupted, ended, stopped, diverged, apart = (t.run for t in plan.trials[:6])
    for run, steps in ((dense, 20), (interrupted, 20), (ended, 20), (stopped, 10), (diverged, 15)):
        logged(lab, run, 0.0, steps)
    logged(lab, apart, 0.0, 16)  # the rung lies between two logged steps
    saved(lab, interrupted, 10)  # it reports rung 20 once more
    Pretender(lab).finish(plan.tasks[2])
    lab.sweep("halved").add_stopped(Stopped(stopped, 10, "asha"))
    lab.sweep("halved").add_stopped(Stopped(apart, 20, "asha"))
    lab.run(diverged).finish(RunState.DIVERGED, step=15)  # it has never come to rung 20
    early = EarlyStopping.of(plan, lab)
    assert early is not None
    known = [(interrupted, 10), (ended, 10), (ended, 20), (stopped, 10), (diverged, 10)]
    known += [(apart, 10), (apart, 20)]
    assert list(early.history()) == [(run, rung, 0.0) for run, rung in known]


def test_a_sweep_that_needs_all_of_it_takes_it_up(lab: Lab) -> None:
    plan, whole = planned(), planned("whole", stop_early=None)
    for named in (plan, whole):
        store_plan(lab.sweep(named.name), named)
    last = plan.tasks[-1]
    logged(lab, plan.trials[-1].run, 0.4, steps=20)
    lab.sweep("halved").add_stopped(Stopped(plan.trials[-1].run, 20, "asha"))
    assert last not in plan.open_tasks(lab) and last in whole.open_tasks(lab)
    assert planned(stop_early=None).open_tasks(lab)[-1] == last
    assert trials_frame(lab, "whole").iloc[-1]["state"] == "interrupted"
    Pretender(lab).finish(last)
    for name in ("halved", "whole"):
        assert trials_frame(lab, name).iloc[-1]["state"] == "completed"


def test_a_new_session_judges_by_what_earlier_ones_saw(lab: Lab) -> None:
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_executor import EarlyStoppingScheduler

    plan = planned(stop_early={"grace": 10, "reduction": 2})
    early = EarlyStopping.of(plan, lab)
    assert early is not None
    logged(lab, plan.trials[0].run, 0.0)
    for number, task in enumerate(plan.tasks[1:6]):
        Pretender(lab).finish(task)
        logged(lab, task.run, 0.1 * number)
    interrupted, good, bad = (trial.run for trial in plan.trials[-3:])
    logged(lab, interrupted, -1.0, steps=10)
    saved(lab, interrupted, 10)
    judge = EarlyStoppingScheduler(early, CallbackErrors())
    assert judge.on_trial_result(None, None, {"run": good}) == "CONTINUE"
    results = (
        (good, 10, -1.0, "CONTINUE"),
        (bad, 10, 9.0, "STOP"),
        (interrupted, 20, 9.0, "STOP"),
    )
    for run, rung, gap, verdict in results:
        result = {"run": run, "rung": rung, "rung_gap": gap}
        assert judge.on_trial_result(None, None, result) == verdict
    assert lab.sweep("halved").stopped()[bad].step == 10


SWEEP = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16, heads: 2}
  train: {steps: 8, batch: 8, warmup: 0}
  execution: {log_every: 2, checkpoint_every: 20}
axes: {route: {start: 0, end: [1, 3]}}
stop_early: {grace: 4, reduction: 2}
evaluate: [{heldout_loss: {images: 8, levels: 2}}]
"""


@pytest.mark.task(24)
@pytest.mark.slow
def test_on_ray_a_bad_trial_ends_early_with_a_checkpoint(in_folder: Path, no_figures: None) -> None:
    from tread_lab.cli import main

    Path("halved.yaml").write_text(SWEEP)
    command = ["sweep", "halved.yaml", "--tracker=none", "--concurrent", "1"]
    assert main(command) == 0
    lab = Lab(in_folder / "lab")
    frame = trials_frame(lab, "halved")
    assert [*frame["state"]] == ["completed", "completed", "stopped"]
    bad, origins = lab.run(frame["run"][2]), [len(run.origin()) for run in lab.runs()]
    assert (bad.result(), bad.step(), frame["steps_done"][2]) == (None, 4, 4)
    assert list(bad.checkpoints.glob("step-00000004-*"))
    assert main(command) == 0
    assert [len(run.origin()) for run in lab.runs()] == origins == [1, 1, 1]
    assert main([*command, "stop_early=null", "--executor", "inline"]) == 0
    assert [*trials_frame(lab, "halved")["state"]] == ["completed"] * 3


def test_a_gap_is_over_common_steps_of_the_second_half(lab: Lab) -> None:
    judged = {"a": (40, "b"), "c": (40, None)}
    early = EarlyStopping(StopEarlySpec(grace=10), lab, "s", judged)
    for run, losses in (("a", {10: 9.0, 11: 4.0, 20: 6.0}), ("b", {10: 9.0, 20: 1.0, 21: 7.0})):
        with lab.run(run).log() as log:
            for step, loss in losses.items():
                log(step, **{"train/loss": loss, "train/lr": 5.0})
    assert early.gap("a", 20) == 5.0  # step 20 alone: 10 is the first half, b lacks 11
    with lab.run("c").log() as log:
        for step, loss in ((10, 9.0), (11, 4.0), (20, 6.0), (30, float("inf"))):
            log(step, **{"train/loss": loss})
    assert early.gap("c", 20) == 5.0 and early.gap("c", 30) is None
    assert early.gap("a", 10) == 0.0 and early.rungs("b") == ()
    lab.run("b").finish(RunState.DIVERGED)  # to be better than that says nothing
    assert early.gap("a", 20) is None and early.gap("c", 20) == 5.0
