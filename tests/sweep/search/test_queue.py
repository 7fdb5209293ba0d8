"""A list of tasks is handed out in order, each one after those that it waits for."""

from __future__ import annotations

from collections.abc import Callable

from tread_lab.specs import RunSpec, encode
from tread_lab.sweep.search.queue import ListQueue, as_queue
from tread_lab.sweep.trial.task import Task

Tiny = Callable[..., RunSpec]


def test_tasks_come_in_order_and_each_is_over_once_it_has_ended(tiny: Tiny) -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1)]
    queue = as_queue(tasks)
    assert as_queue(queue) is queue and not queue.stop and not queue.full
    assert (queue.finished, queue.over, queue.left) == (False, False, "2 runs left")
    assert [queue.next(), queue.next(), queue.next()] == [*tasks, None]
    assert (queue.finished, queue.over, queue.left) == (True, False, "2 runs left")
    queue.ended(tasks[1])
    assert (queue.over, queue.left) == (False, "1 run left")
    queue.ended(tasks[0])
    queue.ended(tasks[0])
    assert (queue.over, queue.left) == (True, "0 runs left")


def test_a_task_waits_for_its_parent_and_for_what_it_comes_after(tiny: Tiny) -> None:
    parent, other = Task(tiny()), Task(tiny(seed=1))
    child = Task(tiny(seed=2, init_from={"run": encode(tiny())}))
    judged = Task(tiny(seed=3))
    queue = ListQueue([child, judged, parent, other], after={judged.run: other.run})
    assert [queue.next(), queue.next(), queue.next()] == [parent, other, None]
    assert not queue.finished
    queue.ended(other)
    assert [queue.next(), queue.next()] == [judged, None]
    queue.ended(parent)
    assert [queue.next(), queue.next()] == [child, None] and queue.finished


def test_a_task_that_is_open_is_not_added_again_and_one_that_ended_is(tiny: Tiny) -> None:
    task = Task(tiny())
    queue = ListQueue([task, task])
    queue.add([task])
    assert queue.next() == task and queue.next() is None
    queue.add([task])  # it runs
    assert queue.next() is None
    queue.ended(task)
    queue.add([task])
    assert queue.next() == task
