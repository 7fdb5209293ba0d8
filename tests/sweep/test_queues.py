"""Order and end of queues: parents first, nothing twice, nothing after the hours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.sweep.plans import tiny
from tests.sweep.test_task import child_of
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Stopwatch
from tread_lab.sweep.task import ListQueue, Task, TimedQueue


def test_list_ends_when_its_tasks_end() -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1)]
    queue = ListQueue(tasks)
    assert (queue.exhausted, queue.done, queue.left) == (False, False, "2 runs left")
    assert [queue.next(), queue.next(), queue.next()] == [*tasks, None]
    assert (queue.exhausted, queue.done) == (True, False)
    queue.add([tasks[0]])  # it runs
    assert queue.next() is None
    queue.ended(tasks[0])
    queue.add([tasks[0]])
    assert queue.next() == tasks[0] and queue.left == "2 runs left"
    for task in tasks:
        queue.ended(task)
    assert (queue.done, queue.left) == (True, "0 runs left")


def test_task_waits_for_parent_and_baseline() -> None:
    parent, other = Task(tiny()), Task(tiny(seed=1))
    child = Task(child_of(parent.spec, seed=2))
    grandchild, judged = Task(child_of(child.spec, seed=2)), Task(tiny(seed=3))
    assert ListQueue([child]).next() == child  # its parent is no task
    queue = ListQueue([grandchild, child, judged, parent, other], after={judged.run: other.run})
    assert [queue.next(), queue.next(), queue.next()] == [parent, other, None]
    queue.ended(other)
    assert [queue.next(), queue.next()] == [judged, None]
    queue.ended(parent)
    assert [queue.next(), queue.next()] == [child, None] and not queue.exhausted
    queue.ended(child)
    assert queue.next() == grandchild and queue.exhausted


@pytest.mark.parametrize(
    ("given", "ended", "spent", "over", "closed"),
    [
        (0, 0, 7200.0, False, False),
        (0, 0, 7200.5, True, True),
        (2, 1, 7200.5, True, True),  # the last run is under way
        (2, 2, 7200.5, True, False),  # nothing is left undone
    ],
)
def test_queue_closes_when_hours_are_spent(
    lab: Lab, given: int, ended: int, spent: float, over: bool, closed: bool
) -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1)]
    queue = TimedQueue(ListQueue(tasks), 2.0, Stopwatch(lab.sweep("spent")))
    for task in tasks[:given]:
        assert queue.next() == task
    for task in tasks[:ended]:
        queue.ended(task)
    queue.watch = SimpleNamespace(seconds=spent, note=lambda: None)  # type: ignore[assignment]
    assert (queue.stop, queue.closed) == (over, closed)
    assert (queue.next() is None) == (over or given == 2)
    assert queue.exhausted == (closed or given == 2)
