"""Where an executor gets its next task: a list in family order, or whatever decides as it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tread_lab.specs.signature import signature
from tread_lab.specs.units import counted
from tread_lab.sweep.trial.task import Task


class TaskQueue(Protocol):
    """Hands out tasks one by one and hears of their ends; called from one thread.

    Attributes:
        finished: nothing will come any more.
        stop: what is running is to end now, with a checkpoint.
    """

    @property
    def finished(self) -> bool: ...

    @property
    def over(self) -> bool:
        """Whether nothing will come any more, and all that was handed out has ended."""
        ...

    @property
    def stop(self) -> bool: ...

    @property
    def full(self) -> bool:
        """Whether something is not handed out because it does not fit a budget."""
        ...

    @property
    def left(self) -> str:
        """What has not been handed out or has not ended, for people."""
        ...

    def next(self) -> Task | None:
        """A task that can start now; nothing while all that is left waits for others to end."""
        ...

    def ended(self, task: Task) -> None:
        """A task that was handed out has come to an end in this session, however it went."""
        ...


class ListQueue:
    """Tasks in their order, none before what it starts from or comes `after`."""

    stop = full = False

    def __init__(self, tasks: Sequence[Task], *, after: Mapping[str, str] | None = None) -> None:
        self._after = after or {}
        self._waiting: dict[str, Task] = {}
        self._open: set[str] = set()
        self.add(tasks)

    def add(self, tasks: Sequence[Task]) -> None:
        """Further tasks at the end; one that is open already is not doubled."""
        for task in tasks:
            name = task.run
            if name not in self._open:
                self._waiting[name] = task
                self._open.add(name)

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
            if self._can_start(name, task):
                return self._waiting.pop(name)
        return None

    def _can_start(self, name: str, task: Task) -> bool:
        """Whether nothing that must come before is open."""
        if self._after.get(name) in self._open:
            return False
        return not any(signature(parent) in self._open for parent in task.spec.ancestors)

    def ended(self, task: Task) -> None:
        self._open.discard(task.run)


def as_queue(work: Sequence[Task] | TaskQueue) -> TaskQueue:
    """A list of tasks as what hands them out."""
    return ListQueue(work) if isinstance(work, Sequence) else work
