"""A judge lets the longest run of a sweep be judged to its end, and notes what it stops."""

from __future__ import annotations

import pytest

from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping

JUDGED = {"short": (90, None), "long": (360, None), "third": (360, None)}


def test_a_run_is_not_stopped_where_a_shorter_one_ends(lab: Lab) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlierTrial, Judge

    early = EarlyStopping(StopEarlySpec(grace=30, reduction=3), lab, "s", JUDGED)
    assert early.rungs("short") == (30,) and early.rungs("long") == (30, 90, 270)
    judge, long = Judge(early, CallbackErrors()), EarlierTrial("long")
    judge.on_trial_add(None, long)
    for rung in (30, 90, 270):
        result = {"run": "long", RUNG: rung, GAP: 0.1}
        assert judge.on_trial_result(None, long, result) == judge.CONTINUE
    assert stopped_early.read(lab.sweep("s").stopped_path) == {}


def test_the_worst_run_of_a_rung_is_stopped_and_the_sweep_notes_it(lab: Lab) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import CallbackErrors
    from tread_lab.sweep.execution.ray_early_stopping import EarlierTrial, Judge

    early = EarlyStopping(StopEarlySpec(grace=30, reduction=2), lab, "s", JUDGED)
    judge, said = Judge(early, CallbackErrors()), []
    for run, gap in (("short", 0.1), ("long", 0.2), ("third", 0.3)):
        judge.on_trial_add(None, EarlierTrial(run))
        said.append(
            judge.on_trial_result(None, EarlierTrial(run), {"run": run, RUNG: 30, GAP: gap})
        )
    assert said == [judge.CONTINUE, judge.STOP, judge.STOP]
    stopped = stopped_early.read(lab.sweep("s").stopped_path)
    assert {run: one.step for run, one in stopped.items()} == {"long": 30, "third": 30}
    assert judge.on_trial_result(None, EarlierTrial("short"), {"run": "short"}) == judge.CONTINUE
