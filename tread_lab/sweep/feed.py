"""Where an executor gets its next task: a list in family order, or whatever decides as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tread_lab.spec.signature import signature
from tread_lab.sweep.trial import Task


class Feed(Protocol):
    """Hands out tasks one by one and hears of their ends; called from one thread.

    Attributes:
        finished: nothing will come any more.
    """

    @property
    def finished(self) -> bool: ...

    def next(self) -> Task | None:
        """A task that can start now; nothing while all that is left waits for others to end."""
        ...

    def ended(self, task: Task) -> None:
        """A task that was handed out has come to an end in this session, however it went."""
        ...


class ListFeed:
    """Tasks in their order, none before those it starts from."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting: dict[str, Task] = {}
        self._open: set[str] = set()
        self.add(tasks)

    def add(self, tasks: Sequence[Task]) -> None:
        """Further tasks at the end; one that is open already is not doubled."""
        for task in tasks:
            name = signature(task.spec)
            if name not in self._open:
                self._waiting[name] = task
                self._open.add(name)

    @property
    def finished(self) -> bool:
        return not self._waiting

    def next(self) -> Task | None:
        for name, task in self._waiting.items():
            if not any(signature(parent) in self._open for parent in task.spec.ancestors):
                return self._waiting.pop(name)
        return None

    def ended(self, task: Task) -> None:
        self._open.discard(signature(task.spec))


def as_feed(work: Sequence[Task] | Feed) -> Feed:
    """A list of tasks as what hands them out."""
    return ListFeed(work) if isinstance(work, Sequence) else work
