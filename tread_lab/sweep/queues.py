"""Queues of tasks: a list in which parents come first, and one that closes after some hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tread_lab.config.signature import signature
from tread_lab.config.units import counted
from tread_lab.records.sweep_folder import Stopwatch
from tread_lab.sweep.task import Task


class TaskQueue(Protocol):
    """Hands out tasks one by one and learns of their ends; called from one thread.

    Attributes:
        finished: whether every task has been handed out.
        over: whether every task has also ended.
        stop: whether the running tasks are to end now, with a checkpoint.
        left: what has not been handed out or has not ended, for people.
    """

    @property
    def finished(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    @property
    def stop(self) -> bool: ...
    @property
    def left(self) -> str: ...

    def next(self) -> Task | None:
        """Return a task that can start now; `None` while every task left waits for others."""

    def ended(self, task: Task) -> None:
        """Note that a task has come to an end in this session, however it went."""


class ListQueue:
    """Tasks in their order, none before its parents or the run that it comes `after`."""

    stop = False

    def __init__(self, tasks: Sequence[Task], *, after: Mapping[str, str] | None = None) -> None:
        self._after = after or {}
        self._waiting: dict[str, Task] = {}
        self._open: set[str] = set()
        self.add(tasks)

    def add(self, tasks: Sequence[Task]) -> None:
        """Append the tasks that are not open already."""
        for task in tasks:
            if task.run not in self._open:
                self._waiting[task.run] = task
                self._open.add(task.run)

    @property
    def finished(self) -> bool:
        return not self._waiting

    @property
    def over(self) -> bool:
        return not self._open

    @property
    def left(self) -> str:
        return f"{counted(len(self._open), 'run')} left"

    def next(self) -> Task | None:
        for name, task in self._waiting.items():
            waits_for = {self._after.get(name), *map(signature, task.spec.ancestors)}
            if not waits_for & self._open:
                return self._waiting.pop(name)
        return None

    def ended(self, task: Task) -> None:
        self._open.discard(task.run)


class TimedQueue:
    """A queue that hands out nothing more and stops all runs after so many hours.

    Args:
        hours: that the command may run, all sessions together; `None` for no limit.

    Attributes:
        closed: whether the hours are over and something is left.
    """

    def __init__(self, queue: TaskQueue, hours: float | None, watch: Stopwatch) -> None:
        self.queue, self.hours, self.watch = queue, hours, watch
        self.closed = False

    @property
    def finished(self) -> bool:
        return self.closed or self.queue.finished

    @property
    def over(self) -> bool:
        return self.queue.over

    @property
    def stop(self) -> bool:
        self.watch.note()
        over = self.hours is not None and self.watch.seconds > self.hours * 3600
        self.closed = self.closed or (over and not self.queue.over)
        return over

    def next(self) -> Task | None:
        return None if self.stop else self.queue.next()

    def ended(self, task: Task) -> None:
        self.queue.ended(task)

    @property
    def left(self) -> str:
        return f"{self.queue.left}; the same command with more hours continues"
