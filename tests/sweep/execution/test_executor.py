"""Signals that stop an executor, mistakes of tasks, and attempts in this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sweep.plans import tiny
from tread_lab.engine.trainer import Trainer
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution import executor
from tread_lab.sweep.execution.executor import (
    InlineExecutor,
    Interrupted,
    UserErrors,
    stop_signals,
)
from tread_lab.sweep.trial.task import ListQueue, Task
from tread_lab.sweep.trial.trial import Report


def test_another_thread_sees_the_signal_before_the_main_thread_handles_it() -> None:
    handlers = signal.getsignal(signal.SIGTERM)
    flags: list[bool] = []
    with stop_signals() as stopping:
        signal.signal(signal.SIGTERM, lambda *_: None)  # the handler that notes it has not run yet
        os.kill(os.getpid(), signal.SIGTERM)
        thread = threading.Thread(target=lambda: flags.append(stopping()))
        thread.start()
        thread.join()
    assert flags == [True]
    assert signal.getsignal(signal.SIGTERM) == handlers


def test_a_stop_that_comes_as_the_last_task_ends_interrupts_nothing(lab: Lab) -> None:
    def stop_at_the_end(report: Report) -> None:
        queue.stop = report.phase == "completed"

    queue = ListQueue([Task(tiny(steps=1))])
    InlineExecutor(device="cpu").run(lab, queue, stop_at_the_end)
    assert queue.stop and queue.over
    queue = ListQueue([Task(tiny(steps=1, seed=1))])
    queue.stop = True
    with pytest.raises(Interrupted):
        InlineExecutor(device="cpu").run(lab, queue, lambda report: None)


def test_the_first_mistake_is_raised_with_the_number_of_others() -> None:
    errors = UserErrors()
    errors.raise_first()
    for message, said in (("a", "a"), ("a", "a"), ("b", r"a \(and 1 more like it\)")):
        with errors.collect():
            raise UserError(message)
        with pytest.raises(UserError, match=f"^{said}$"):
            errors.raise_first()
    with pytest.raises(Unavailable, match="full"), errors.collect():
        raise Unavailable("the disk is full")
    assert list(errors.messages) == ["a", "b"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_acts_as_usual_and_outside_nothing_is_changed(
    number: signal.Signals,
) -> None:
    hits: list[int] = []
    earlier = signal.signal(number, lambda number, frame: hits.append(number))
    usual = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stop_signals() as stopping:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not stopping()  # another signal asks for nothing
            os.kill(os.getpid(), number)
            assert stopping() and stopping() and hits == []
            os.kill(os.getpid(), number)
            assert hits == [number]
        with stop_signals() as stopping:
            assert not stopping()
        os.kill(os.getpid(), number)
        assert len(hits) == 2 and not stopping()
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.signal(number, earlier)
        signal.signal(signal.SIGUSR1, usual)


def test_in_another_thread_no_signal_is_waited_for() -> None:
    flags: list[bool] = []

    def watch() -> None:
        with stop_signals() as stopping:
            flags.append(stopping())

    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert flags == [False]


def test_a_task_is_attempted_until_an_attempt_ends_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Any] = []

    def run_trial(lab: Lab, task: Task, device: Any, worker: Any) -> Iterator[Report]:
        attempts.append((str(device), worker.hang_timeout))
        yield Report(task.run, "train", 1, 2, 0.5)
        if len(attempts) < fails:
            raise ValueError("bad\nmore")

    monkeypatch.setattr(executor, "run_trial", run_trial)
    fails, reports = 3, list[Report]()
    InlineExecutor(device="cpu", hang_timeout=5.0).run(lab, [Task(tiny())], reports.append)
    assert attempts == [("cpu", 5.0)] * 3 and len(reports) == 3
    fails, task = 1000, Task(tiny(seed=1))
    with pytest.raises(RuntimeError) as end:
        InlineExecutor(device="cpu").run(lab, [task], print)
    assert len(attempts) == 3 + 50
    said = f"run {task.run}: no attempt comes to an end; the last one: ValueError: bad"
    assert str(end.value) == said


def test_what_a_signal_breaks_is_no_failure_of_the_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends a compiler, too, which is a child process, and whose end is an exception."""

    def stopped_while_it_compiles(*_: Any, lr: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("C++ compile error")

    task = Task(tiny(steps=2))
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Trainer, "train_step", stopped_while_it_compiles)
        InlineExecutor(device="cpu").run(lab, [task], lambda report: None)
    InlineExecutor(device="cpu").run(lab, [task], lambda report: None)
    ends = [attempt.ended for attempt in lab.run(task.run).attempts.read()]
    assert ends == ["interrupted", "completed"]


def test_a_signal_interrupts_a_task_that_is_under_way(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def run_trial(lab: Lab, task: Task, device: Any, worker: Any) -> Iterator[Report]:
        for phase in ("train", "evaluate", "completed"):
            seen.append(phase)
            yield Report(task.run, phase, 1, 2, 0.5)

    monkeypatch.setattr(executor, "run_trial", run_trial)
    with pytest.raises(Interrupted) as end:
        InlineExecutor(device="cpu").run(
            lab, [Task(tiny())], lambda report: os.kill(os.getpid(), signal.SIGTERM)
        )
    assert seen == ["train"] and end.value.exit_code == 130
