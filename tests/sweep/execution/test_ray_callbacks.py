"""Callbacks of Ray Tune: they can be pickled whatever they hold, and their errors are raised."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError, encode
from tread_lab.sweep.execution.executor import UserErrors
from tread_lab.sweep.execution.heartbeat import HeartbeatMonitor
from tread_lab.sweep.search.queue import ListQueue
from tread_lab.sweep.trial.task import Task


def test_what_lives_in_the_driver_is_left_out_of_what_ray_writes(lab: Lab) -> None:
    pytest.importorskip("ray")
    from ray import cloudpickle

    from tread_lab.sweep.execution.ray_callbacks import QueueSearcher, StopFlag, TrialWatcher

    lock = threading.Lock()  # a live display holds such, and nobody can pickle them
    with pytest.raises(TypeError, match="pickle"):
        cloudpickle.dumps(lambda report: lock)
    monitor = HeartbeatMonitor(lab, lambda attempt: None)
    watcher = TrialWatcher(lab, lambda report: None, lock.locked, monitor, UserErrors())
    searcher = QueueSearcher(ListQueue([]), watcher.errors)
    searcher.lock = lock  # type: ignore[attr-defined]
    for part in (watcher, searcher, StopFlag(lock.locked)):
        assert isinstance(cloudpickle.loads(cloudpickle.dumps(part)), type(part))


def test_an_error_of_the_queue_ends_the_search_for_tasks_and_is_raised_afterwards(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    pytest.importorskip("ray")
    from ray.tune.search import Searcher

    from tread_lab.sweep.execution.ray_callbacks import QueueSearcher, TrialWatcher

    class Broken(ListQueue):
        def ended(self, task: Task) -> None:
            raise UserError("the study cannot be written")

    monitor = HeartbeatMonitor(lab, lambda attempt: None)
    watcher = TrialWatcher(lab, lambda report: None, lambda: False, monitor, UserErrors())
    tasks = [Task(tiny()), Task(tiny(seed=1))]
    searcher = QueueSearcher(Broken(tasks), watcher.errors)
    assert isinstance(searcher.suggest("one"), dict) and not watcher.stopping()
    searcher.on_trial_complete("one")
    assert watcher.stopping() and searcher.suggest("two") is not None
    assert searcher.suggest("three") == Searcher.FINISHED
    with pytest.raises(UserError, match="cannot be written"):
        watcher.errors.raise_first()


def test_starts_that_train_a_parent_are_no_fruitless_starts(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_callbacks import TrialWatcher
    from tread_lab.sweep.execution.ray_worker import SentTask

    monitor = HeartbeatMonitor(lab, lambda attempt: None)
    watcher = TrialWatcher(lab, lambda report: None, lambda: False, monitor, UserErrors())
    child = Task(tiny(init_from={"run": encode(tiny())}))
    trial = SimpleNamespace(
        config={"task": SentTask(child)}, get_pickled_error=lambda: RuntimeError("no memory\nx")
    )
    parent = lab.run_of(tiny()).attempts
    for _ in range(8):
        parent.close(parent.open(), "died")
        watcher.on_trial_recover(0, [], trial)
    for _ in range(5):  # starts that make no attempt at either
        watcher.on_trial_recover(0, [], trial)
        assert watcher.unavailable == ""
    watcher.on_trial_recover(0, [], trial)
    assert watcher.unavailable == "Ray cannot start a worker: no memory"
