"""Orders the runs of a family: parents before children, each parent trained once for all."""

from __future__ import annotations

from collections.abc import Iterable

from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.trial import Task


def with_ancestors(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks and those of their ancestors, parents first, each run once.

    A parent that is among `tasks` keeps its evaluations; any other parent is only trained.
    """
    tasks_by_run = {task.run: task for task in tasks}
    ordered: dict[str, Task] = {}
    for name, task in tasks_by_run.items():
        for parent in task.spec.ancestors:
            parent_name = signature(parent)
            ordered.setdefault(parent_name, tasks_by_run.get(parent_name, Task(parent)))
        ordered.setdefault(name, task)
    return tuple(ordered.values())
