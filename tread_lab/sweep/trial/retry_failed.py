"""Failed runs taken up again at the user's wish: their tries count anew, their record stays."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tread_lab.records.endings import FAILURES
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.trial import Task

PARENT = "parent"  # kind of a run that failed because the one it starts from did


def failed_kind(folder: RunFolder) -> str | None:
    """Why a run has failed, nothing if it has not."""
    result = folder.result() or {}
    return str(result.get("kind", "exception")) if result.get("state") is RunState.FAILED else None


def chosen(lab: Lab, tasks: Sequence[Task], kinds: Collection[str] = ()) -> list[Task]:
    """The failed tasks of these kinds, of all where none is given, and what failed for them.

    Raises:
        UserError: there is no such kind.
    """
    for kind in kinds:
        if kind not in FAILURES:
            raise UserError(f"--retry-failed: no kind of failure {kind!r}{suggest(kind, FAILURES)}")
    found: dict[str, Task] = {}
    for task in tasks:  # parents stand before their children
        why = failed_kind(lab.run(task.run))
        follows = any(signature(parent) in found for parent in task.spec.ancestors)
        if why is not None and (not kinds or why in kinds or (why == PARENT and follows)):
            found[task.run] = task
    return list(found.values())


def take_up(lab: Lab, task: Task) -> None:
    """Open a failed run again.

    Raises:
        Busy: another process works on it.
    """
    folder = lab.run(task.run)
    with folder.claim():
        folder.attempts.forgive()
        folder.reopen()
