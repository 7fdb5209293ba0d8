"""Early stopping judges runs by paired losses on record, at equal steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.pretender import Pretender, ended_run
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.config import UserError
from tread_lab.config.sweep import StopEarlySpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Judgement
from tread_lab.results import trials_frame
from tread_lab.sweep.early_stopping import EarlyStopping
from tread_lab.sweep.plan import Plan, store_plan
from tread_lab.sweep.run_task import Report


def planned(name: str = "halved", **more: Any) -> Plan:
    early = {"grace": 10, "reduction": 2}
    tree = {"axes": {"route": {"start": 0, "end": "0..7"}}, "stop_early": early, **more}
    return plan_of(tiny(steps=60, model=DEEP), name, **tree)


def logged(lab: Lab, run: str, *losses: float) -> None:
    """Log a loss every five steps."""
    with lab.run(run).log() as log:
        for number, loss in enumerate(losses, start=1):
            log(5 * number, **{"train/loss": loss, "train/lr": 5.0})


def test_runs_are_judged_at_equal_steps(lab: Lab) -> None:
    axes = {"route": ["0->1"], "train.steps": [90, 270]}
    early = EarlyStopping.of(planned(axes=axes, stop_early="asha"), lab)
    assert early is not None
    assert {early.rungs(run) for run in early.judged} == {(10, 30), (10, 30, 90)}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"axes": {"route": ["0->1"], "loss": ["plain", {"kind": "ensemble", "weight": 0.1}]}},
            r"compare: a loss less itself, equation 0\.1 less plain; ",
        ),
        (
            {"fixed": {"execution": {"log_every": 25}}, "stop_early": {"grace": 20}},
            r"execution\.log_every=25 logs no loss .*stop_early\.grace=25",
        ),
        ({"stop_early": {"grace": 31, "reduction": 2}}, r"grace: must be at most 30 .*got 31"),
    ],
)
def test_what_judges_nobody_is_refused(lab: Lab, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        EarlyStopping.of(planned(**more), lab)


def test_needed_runs_are_not_judged(lab: Lab) -> None:
    plan = planned()
    dense, *others = plan.trials
    early = EarlyStopping.of(replace(plan, trials=(replace(dense, role="trial"), *others)), lab)
    assert early is not None
    assert early.judged == {trial.run: (60, dense.run) for trial in others}
    assert EarlyStopping.of(planned(stop_early=None), lab) is None
    family = {"then": {"none": {}, "dense": {"then": {"routes": [], "train": {"steps": 30}}}}}
    plan = planned(axes={"route": ["0->1"]}, variants=family)
    early = EarlyStopping.of(plan, lab)
    (child,) = (trial for trial in plan.trials if trial.role == "trial" and trial.spec.parent)
    assert early is not None and list(early.judged) == [child.run]


def test_gap_covers_common_steps_of_second_half(lab: Lab) -> None:
    early = EarlyStopping(StopEarlySpec(grace=10), lab, "s", {"a": (40, "b"), "c": (40, None)})
    assert early.gap("a", 20) is None  # nothing is logged
    logged(lab, "a", 9.0, 9.0, 4.0, 6.0)
    logged(lab, "b", 9.0, 9.0, 1.0, 1.0, 7.0)
    assert (early.gap("a", 20), early.gap("a", 10), early.rungs("b")) == (4.0, 0.0, ())
    logged(lab, "c", 9.0, 9.0, 4.0, 6.0, float("inf"))
    assert early.gap("c", 20) == 5.0 and early.gap("c", 25) is None
    lab.run("b").finish(RunState.DIVERGED)  # to be better than that says nothing
    assert early.gap("a", 20) is None and early.gap("c", 20) == 5.0


def test_verdict_is_a_function_of_records(lab: Lab) -> None:
    """As ASHA of Ray Tune: worse than the best 1/reduction of those that came before."""
    plan = planned()
    dense, *runs = (trial.run for trial in plan.trials)
    logged(lab, dense, *[1.0] * 4)
    verdicts = list[bool]()
    for run, loss in zip(runs, (1.5, 1.2, 1.3, 1.9, 1.1)):
        logged(lab, run, loss, loss)
        early = EarlyStopping.of(plan, lab)  # of a new session each time
        assert early is not None and not early(Report(run, "train", 7, 60))
        verdicts.append(early(Report(run, "train", 10, 60)))
    assert verdicts == [False, False, False, True, False]
    stopped = lab.sweep("halved").stopped()
    assert list(stopped) == [runs[3]] and "asha at step 10" in stopped[runs[3]].reason
    assert early(Report(runs[3], "train", 10, 60)), "and the same once more"


def test_sweep_without_early_stopping_continues_runs(lab: Lab) -> None:
    plan, whole = planned(), planned("whole", stop_early=None)
    for named in (plan, whole):
        store_plan(lab.sweep(named.name), named)
    last = plan.tasks[-1]
    logged(lab, last.run, 1.0, 1.0)
    lab.sweep("halved").add_judgement(Judgement(last.run, 10, 0.5))
    assert last not in plan.open_tasks(lab) and last in whole.open_tasks(lab)
    assert trials_frame(lab, "whole").iloc[-1]["state"] == "interrupted"
    assert trials_frame(lab, "halved").iloc[-1]["state"] == "stopped"
    Pretender(lab).finish(last)
    for name in ("halved", "whole"):
        assert trials_frame(lab, name).iloc[-1]["state"] == "completed"


def test_incomparable_losses_of_ended_runs_are_accepted(lab: Lab) -> None:
    axes = {"route": ["0->1", "0->2"], "loss": ["plain", {"kind": "ensemble", "weight": 0.1}]}
    plan = planned(axes=axes)
    for trial in plan.trials:
        ended_run(lab, trial.spec, step=60, metrics={})
    assert EarlyStopping.of(plan, lab)
    with pytest.raises(UserError, match="do not compare"):
        EarlyStopping.of(plan, lab, again=[plan.trials[-1].run])
