"""Task queues: their protocol, and a list in which parents come before their children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tread_lab.specs.signature import signature
from tread_lab.specs.units import counted
from tread_lab.sweep.trial.task import Task


class TaskQueue(Protocol):
    """Hands out tasks one by one and hears of their ends; called from one thread.

    Attributes:
        finished: whether every task has been handed out.
        over: whether every task has been handed out and has ended.
        stop: whether the running tasks are to end now, with a checkpoint.
        full: whether a task is left because it does not fit a budget.
        left: what has not been handed out or has not ended, for people.
    """

    @property
    def finished(self) -> bool: ...
    @property
    def over(self) -> bool: ...
    @property
    def stop(self) -> bool: ...
    @property
    def full(self) -> bool: ...
    @property
    def left(self) -> str: ...

    def next(self) -> Task | None:
        """Return a task that can start now; `None` while every task left waits for others."""

    def ended(self, task: Task) -> None:
        """Note that a task has come to an end in this session, however it went."""


class ListQueue:
    """Tasks in their order, none before its parents or the run that it comes `after`."""

    stop = full = False

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


def as_queue(work: Sequence[Task] | TaskQueue) -> TaskQueue:
    """Return a list of tasks as a queue."""
    return ListQueue(work) if isinstance(work, Sequence) else work
