"""A step of a worker ends at the steps at which early stopping judges its run."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.records.lab import Lab
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.trial.trial import Report


def worker(lab: Lab, *reports: Report) -> Any:
    """A worker of no cluster that has these reports still to give, all within a moment."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_worker import Worker

    made = Worker.__new__(Worker)
    made.early = EarlyStopping(StopEarlySpec(grace=10, reduction=2), lab, "s", {"a": (40, None)})
    made.rungs, made._reports = made.early.rungs("a"), iter(reports)
    return made


def report(phase: str, step: int) -> Report:
    return Report("a", phase, step, 40, 0.5)


def test_every_rung_is_reported_with_its_gap_however_fast_the_steps_are(lab: Lab) -> None:
    with lab.run("a").log() as log:
        for step in (5, 10, 15, 20):
            log(step, **{"train/loss": float(step)})
    fast = worker(lab, *(report("train", step) for step in range(5, 40, 5)))
    steps = [fast.step() for _ in range(4)]
    assert [(s.get("step"), s.get(RUNG), s.get(GAP)) for s in steps] == [
        (10, 10, 10.0),
        (20, 20, 17.5),
        (35, None, None),
        (None, None, None),
    ]
    assert [s["done"] for s in steps] == [False, False, False, True]


def test_a_step_that_is_measured_is_not_judged(lab: Lab) -> None:
    result = worker(lab, report("evaluate", 10), report("completed", 40)).step()
    assert (result["phase"], result["done"]) == ("completed", True) and GAP not in result
