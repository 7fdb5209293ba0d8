"""Progress of runs and of long work: what counts as done, and the time left."""

from __future__ import annotations

import pytest

from tests.pretender import Pretender
from tests.sweep.plans import tiny
from tread_lab.cli.progress import Bars, TasksDone
from tread_lab.config import decode
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.sweep.forecast import evaluation_flops_left, task_flops
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.task import Task

HELDOUT = decode(HeldoutSpec, {"images": 32, "levels": 4})


def report(task: Task, phase: str, step: int, measured: float = 0.0) -> Report:
    return Report(task.run, phase, step, task.spec.train.steps, 0.5, measured=measured)


def share(bars: Bars) -> float:
    return bars.tasks[0].percentage / 100


def test_training_and_measuring_count_by_their_flops(lab: Lab) -> None:
    task, bars = Task(tiny(steps=6), (HELDOUT,)), Bars()
    trained = cost(task.spec).train_flops / task_flops(task)
    work = TasksDone(bars, [task], lab)
    assert share(bars) == 0 and work.counts() == "0/1 ended"
    for phase, step, measured, done in (
        ("train", 3, 0.0, trained / 2),
        ("train", 6, 0.0, trained),
        ("evaluate", 6, 0.25, trained + (1 - trained) / 4),
        ("completed", 6, 0.0, 1.0),
    ):
        work.record(report(task, phase, step, measured))
        assert share(bars) == pytest.approx(done)
    assert work.counts() == "1/1 ended: 1 completed"


def test_earlier_sessions_count_as_done(lab: Lab) -> None:
    measured, fresh, bars = Task(tiny(steps=6), (HELDOUT,)), Task(tiny(steps=6, seed=1)), Bars()
    Pretender(lab).run([measured])
    half = Task(measured.spec, (HELDOUT, decode(HeldoutSpec, {"images": 48, "levels": 4})))
    work = TasksDone(bars, [half, fresh], lab)
    work.record(report(fresh, "completed", 6))
    total = task_flops(half) + task_flops(fresh)
    assert share(bars) == pytest.approx(1 - evaluation_flops_left(lab, half) / total)
