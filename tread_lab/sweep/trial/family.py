"""Runs that start from other runs: parents before children, each trained once for all of them."""

from __future__ import annotations

from collections.abc import Iterable

from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.trial import Task


def with_ancestors(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Every task after those it descends from, each run once.

    A parent that is a task itself keeps its evaluations; any other is only trained.
    """
    asked = {task.run: task for task in tasks}
    found: dict[str, Task] = {}
    for name, task in asked.items():
        for parent in task.spec.ancestors:
            parent_name = signature(parent)
            found.setdefault(parent_name, asked.get(parent_name, Task(parent)))
        found.setdefault(name, task)
    return tuple(found.values())
