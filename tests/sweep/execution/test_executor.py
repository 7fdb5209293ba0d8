"""Signals that stop an executor, and the exit code of a driver whose cluster went with it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec
from tread_lab.sweep.execution.executor import InlineExecutor, Interrupted, stop_signals
from tread_lab.sweep.search.queue import ListQueue
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_the_flag_and_nothing_else(number: signal.Signals) -> None:
    with stop_signals() as stopping:
        assert not stopping()
        os.kill(os.getpid(), number)
        assert stopping()


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


@pytest.mark.parametrize(("stopping", "code"), [(True, 130), (False, 3)])
def test_a_lost_cluster_is_code_130_if_the_driver_was_asked_to_stop(
    stopping: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_cluster

    codes: list[Any] = []

    def exits(message: str, last: Any, code: int = 3) -> None:
        codes.append(code)

    monkeypatch.setattr(ray_cluster, "leave", exits)
    ray_cluster.Driver(lambda: stopping).leave("the cluster is lost")
    assert codes == [code]


def test_a_stop_that_comes_as_the_last_task_ends_interrupts_nothing(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    def stop_at_the_end(report: Report) -> None:
        queue.stop = report.phase == "completed"

    queue = ListQueue([Task(tiny(steps=1))])
    InlineExecutor(device="cpu").run(lab, queue, stop_at_the_end)
    assert queue.stop and queue.over
    queue = ListQueue([Task(tiny(steps=1, seed=1))])
    queue.stop = True
    with pytest.raises(Interrupted):
        InlineExecutor(device="cpu").run(lab, queue, lambda report: None)
