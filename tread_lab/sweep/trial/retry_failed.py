"""`--retry-failed`: reopens failed runs with fresh tries and keeps their record."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tread_lab.records.endings import FAILURES
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.task import Task

PARENT = "parent"  # kind of failure of a run whose parent failed


def failed_kind(folder: RunFolder) -> str | None:
    """Return the kind of a run's failure, or `None` if the run has not failed."""
    result = folder.result() or {}
    return str(result.get("kind", "exception")) if result.get("state") is RunState.FAILED else None


def failed_tasks(lab: Lab, tasks: Sequence[Task], kinds: Collection[str] = ()) -> list[Task]:
    """Return the failed tasks of these kinds (all kinds by default) and those failed by a parent.

    Raises:
        UserError: there is no such kind of failure.
    """
    for name in kinds:
        if name not in FAILURES:
            raise UserError(f"--retry-failed: no kind of failure {name!r}{suggest(name, FAILURES)}")
    failed: dict[str, Task] = {}
    for task in tasks:  # parents stand before their children
        kind = failed_kind(lab.run(task.run))
        follows = any(signature(parent) in failed for parent in task.spec.ancestors)
        if kind is not None and (not kinds or kind in kinds or (kind == PARENT and follows)):
            failed[task.run] = task
    return list(failed.values())


def reopen(lab: Lab, task: Task) -> None:
    """Reopen a failed run: its earlier attempts no longer count as tries.

    Raises:
        Busy: another process holds the run's lock.
    """
    folder = lab.run(task.run)
    with folder.lock():
        folder.attempts.forgive()
        folder.reopen()
