"""What the executor hands to Ray can be written to disk, whatever shows the progress."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError
from tread_lab.sweep.execution.heartbeat import HeartbeatMonitor
from tread_lab.sweep.search.queue import ListQueue
from tread_lab.sweep.trial.trial import Task


def test_what_lives_in_the_driver_is_left_out_of_what_ray_writes(lab: Lab) -> None:
    pytest.importorskip("ray")
    from ray import cloudpickle

    from tread_lab.sweep.execution import ray_executor

    lock = threading.Lock()  # a live display holds such, and nobody can pickle them
    with pytest.raises(TypeError, match="pickle"):
        cloudpickle.dumps(lambda report: lock)
    monitor = HeartbeatMonitor(lab, lambda attempt: None)
    watcher = ray_executor._Watcher(lab, lambda report: None, lock.locked, monitor)
    asks = ray_executor._Asks(ListQueue([]), watcher.errors)
    asks.lock = lock  # type: ignore[attr-defined]
    for part in (watcher, asks, ray_executor._Stop(lock.locked)):
        assert isinstance(cloudpickle.loads(cloudpickle.dumps(part)), type(part))


def test_an_error_of_the_feed_ends_the_asking_and_is_raised_afterwards(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    pytest.importorskip("ray")
    from ray.tune.search import Searcher

    from tread_lab.sweep.execution.ray_executor import _Asks, _Watcher

    class Broken(ListQueue):
        def ended(self, task: Task) -> None:
            raise UserError("the study cannot be written")

    watcher = _Watcher(
        lab, lambda report: None, lambda: False, HeartbeatMonitor(lab, lambda attempt: None)
    )
    tasks = [Task(tiny()), Task(tiny(seed=1))]
    asks = _Asks(Broken(tasks), watcher.errors)
    assert isinstance(asks.suggest("one"), dict) and not watcher.stopping()
    asks.on_trial_complete("one")
    assert watcher.stopping() and asks.suggest("two") is not None
    assert asks.suggest("three") == Searcher.FINISHED
    with pytest.raises(UserError, match="cannot be written"):
        watcher.errors.raise_first()
