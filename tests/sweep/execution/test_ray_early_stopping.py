"""A judge lets the longest run of a sweep be judged to its end, and notes what it stops."""

from __future__ import annotations

import pytest

from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping

JUDGED = {"short": (90, None), "long": (360, None), "third": (360, None)}


def test_runs_are_judged_beyond_the_end_of_a_shorter_one(lab: Lab) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlierTrial, EarlyStoppingScheduler

    early = EarlyStopping(StopEarlySpec(grace=30, reduction=3), lab, "s", JUDGED)
    assert early.rungs("short") == (30,) and early.rungs("long") == (30, 90, 270)
    judge = EarlyStoppingScheduler(early, CallbackErrors())
    gaps = {"long": (0.1, 0.1, 0.1), "third": (0.05, 0.05, 0.3)}
    said = {}
    for run in gaps:
        judge.on_trial_add(None, EarlierTrial(run))
        results = [{"run": run, RUNG: r, GAP: g} for r, g in zip((30, 90, 270), gaps[run])]
        said[run] = [judge.on_trial_result(None, EarlierTrial(run), one) for one in results]
    assert said["long"] == [judge.CONTINUE] * 3
    assert said["third"] == [judge.CONTINUE, judge.CONTINUE, judge.STOP]


def test_the_worst_run_of_a_rung_is_stopped_and_the_sweep_notes_it(lab: Lab) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlierTrial, EarlyStoppingScheduler

    early = EarlyStopping(StopEarlySpec(grace=30, reduction=2), lab, "s", JUDGED)
    judge, said = EarlyStoppingScheduler(early, CallbackErrors()), []
    for run, gap in (("short", 0.1), ("long", 0.2), ("third", 0.3)):
        judge.on_trial_add(None, EarlierTrial(run))
        said.append(
            judge.on_trial_result(None, EarlierTrial(run), {"run": run, RUNG: 30, GAP: gap})
        )
    assert said == [judge.CONTINUE, judge.STOP, judge.STOP]
    stopped = stopped_early.read(lab.sweep("s").stopped_path)
    assert {run: one.step for run, one in stopped.items()} == {"long": 30, "third": 30}
    assert judge.on_trial_result(None, EarlierTrial("short"), {"run": "short"}) == judge.CONTINUE


def test_rules_of_ray_have_the_settings_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_early_stopping as module

    for name in ("ASHAScheduler", "MedianStoppingRule"):
        monkeypatch.setattr(module, name, lambda **settings: settings)
    judged_by = {"time_attr": "rung", "metric": "rung_gap", "mode": "min"}
    asha = module.RULES["asha"](StopEarlySpec(grace=30, reduction=2), 360)
    assert asha == {
        **judged_by, "max_t": 360, "grace_period": 30, "reduction_factor": 2,
        "stop_last_trials": False,
    }  # fmt: skip
    spec = StopEarlySpec(kind="median", grace=25, least=7)
    assert module.RULES["median"](spec, 100) == {
        **judged_by, "grace_period": 25, "min_samples_required": 7,
        "min_time_slice": float("inf"),
    }  # fmt: skip


def test_a_sweep_without_judged_runs_has_a_judge_too(lab: Lab) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlyStoppingScheduler

    errors = CallbackErrors()
    judge = EarlyStoppingScheduler(EarlyStopping(StopEarlySpec(), lab, "s", {}), errors)
    assert judge.errors is errors and judge.early.sweep == "s"


def test_a_verdict_that_cannot_be_noted_is_an_error_of_the_driver(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlierTrial, EarlyStoppingScheduler

    judge = EarlyStoppingScheduler(
        EarlyStopping(StopEarlySpec(), lab, "s", JUDGED), CallbackErrors()
    )
    monkeypatch.setattr(judge.rule, "on_trial_result", lambda *result: judge.STOP)
    (lab.root / "sweeps").mkdir(parents=True)
    (lab.root / "sweeps" / "s").touch()  # where a folder should be
    trial = EarlierTrial("long")
    assert judge.on_trial_result(None, trial, {"run": "long", RUNG: 30}) == judge.CONTINUE
    assert judge.errors.first is None
    result = {"run": "long", RUNG: 30, GAP: 0.5}
    assert judge.on_trial_result(None, trial, result) == judge.STOP
    assert isinstance(judge.errors.first, UserError)
