"""Progress of a sweep: what counts as done, and how the time left follows from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
import torch

from tread_lab.engine.cost.speed import Speed, kind_of
from tread_lab.records.lab import Lab
from tread_lab.screen import live_progress
from tread_lab.screen.live_progress import WorkDone
from tread_lab.specs import RunSpec, decode
from tread_lab.specs.evaluation import HeldoutSpec
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.plan.forecast import Forecast
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report, run_trial

Tiny = Callable[..., RunSpec]
HELDOUT = decode(HeldoutSpec, {"images": 32, "levels": 4})


class Clock:
    """`time.monotonic`, standing still unless told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(live_progress.time, "monotonic", lambda: self.now)


def report(task: Task, phase: str, step: int) -> Report:
    return Report(task.run, phase, step, task.spec.train.steps, 0.5)


def seconds_per_step(lab: Lab, *tasks: Task) -> Forecast:
    """Every step is predicted to take a second, in one slot."""
    speed = Speed(overhead=1.0, per_flop=0, call=0, per_call_flop=0)
    return Forecast(lab, {kind_of(task.spec): speed for task in tasks})


def test_training_and_measuring_count_as_much_as_they_take(lab: Lab, tiny: Tiny) -> None:
    task = Task(tiny(steps=6), (HELDOUT,))
    forecast = Forecast(lab)
    trained = forecast.training(task.spec) / forecast.work(task)
    assert 0.1 < trained < 0.9
    work = WorkDone([task], [task], forecast)
    assert work.fraction() == 0 and work.counts() == "0/1 ended"
    work.record(report(task, "train", 3))
    assert work.fraction() == pytest.approx(trained / 2)
    work.record(report(task, "train", 6))
    assert work.fraction() == pytest.approx(trained)
    InlineExecutor(device="cpu").run(lab, [task], lambda _: None)
    work.record(report(task, "evaluate", 6))
    assert work.fraction() == pytest.approx(1)
    work.record(report(task, "completed", 6))
    assert work.fraction() == 1 and work.summary() == "1/1 ended: 1 completed"


def test_what_earlier_sessions_did_is_neither_progress_nor_left(lab: Lab, tiny: Tiny) -> None:
    trained, fresh = Task(tiny(steps=6)), Task(tiny(steps=6, seed=1))
    InlineExecutor(device="cpu").run(lab, [trained], lambda _: None)
    half = Task(trained.spec, (HELDOUT,))
    forecast = Forecast(lab)
    work = WorkDone([half, fresh], [half, fresh], forecast)
    work.record(report(fresh, "completed", 6))
    measuring = forecast.measuring(half)
    assert work.fraction() == pytest.approx(1 - measuring / (measuring + forecast.work(fresh)))


def test_time_left_begins_as_predicted_and_follows_what_is_seen(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, task = Clock(monkeypatch), Task(tiny(steps=1000))
    work = WorkDone([task], [task], seconds_per_step(lab, task))
    work.record(report(task, "train", 0))
    assert work.time_left() == live_progress.duration(1000)
    clock.now += 1000  # half as fast as predicted
    work.record(report(task, "train", 500))
    left = 500 * (1000 + 30) / (500 + 30)
    assert work.time_left() == live_progress.duration(left)


def test_without_a_prediction_nothing_is_said_before_something_is_seen(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, task = Clock(monkeypatch), Task(tiny(steps=1000))
    work = WorkDone([task], [task], Forecast(lab))
    work.record(report(task, "train", 100))
    assert work.time_left() == "..."
    clock.now += 60
    assert work.time_left() == "..."  # nothing was seen to move since the first report
    work.record(report(task, "train", 200))
    assert work.time_left() == live_progress.duration(480)  # 100 steps took a minute


def test_the_longest_run_under_way_is_waited_for(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)
    long, short = Task(tiny(steps=1000)), Task(tiny(steps=10))
    speeds = seconds_per_step(lab, long, short).speeds
    work = WorkDone([long, short], [long, short], Forecast(lab, speeds, slots=2))
    work.record(report(long, "train", 0))
    work.record(report(short, "completed", 10))
    assert work.time_left() == live_progress.duration(1000 * 30 / 35)
    work.record(report(long, "train", 600))
    assert work.time_left() == live_progress.duration(400 * 30 / (305 + 30))


def test_the_speed_is_that_of_all_slots_together(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tasks = Clock(monkeypatch), [Task(tiny(steps=1000, seed=seed)) for seed in range(4)]
    forecast = Forecast(lab, seconds_per_step(lab, *tasks).speeds, slots=2)
    work = WorkDone(tasks, tasks, forecast)
    for task in tasks[:2]:
        work.record(report(task, "train", 0))
    clock.now += 500  # exactly as predicted, two runs at once
    for task in tasks[:2]:
        work.record(report(task, "train", 500))
    assert work.time_left() == live_progress.duration(1500)


def test_a_run_that_goes_on_from_before_its_last_entry_has_not_lost_what_is_done(
    lab: Lab, tiny: Tiny
) -> None:
    task = Task(tiny(steps=20))
    with closing(run_trial(lab, task, torch.device("cpu"))) as steps:  # type: ignore[type-var]
        while next(steps).step < 15:
            pass
    work = WorkDone([task], [task], Forecast(lab))
    work.record(report(task, "train", 11))
    assert work.fraction() == 0
    work.record(report(task, "train", 14))
    assert work.fraction() == pytest.approx(3 / 9)
    work.record(report(task, "train", 20))
    assert work.fraction() == pytest.approx(1)


def test_measuring_is_reported_before_each_evaluation(lab: Lab, tiny: Tiny) -> None:
    other = decode(HeldoutSpec, {"images": 16, "levels": 4})
    task = Task(tiny(steps=2), (HELDOUT, other))
    done = [
        len(list(lab.run(task.run).path.glob("evaluations/*/metrics.json")))
        for step in run_trial(lab, task, torch.device("cpu"))
        if step.phase == "evaluate"
    ]
    assert done == [0, 1]
