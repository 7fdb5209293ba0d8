"""The retry policy: which attempt is followed by another, and which failed runs are reopened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tread_lab.records.attempts import EXIT_REASONS, FAILURES, Attempt
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import UserError, lookup, suggest
from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.task import Task

PARENT = "parent"  # kind of failure of a run whose parent failed


def last_try(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that used up the tries of its kind; `None` if another one follows.

    Raises:
        UserError: the record holds an exit reason that this version does not know.
    """
    counted = [attempt for attempt in attempts if attempt.ended and not attempt.forgiven]
    times = Counter(attempt.ended for attempt in counted)
    exit_reasons = {kind: lookup(EXIT_REASONS, kind, "how an attempt has ended") for kind in times}
    for attempt in reversed(counted):
        tries = exit_reasons[attempt.ended].tries
        if tries is not None and times[attempt.ended] >= tries:
            return attempt
    return None


def consequence(attempts: Sequence[Attempt]) -> str:
    """Return what follows from the end of the last attempt, for people."""
    kind, tries = attempts[-1].ended, EXIT_REASONS[attempts[-1].ended].tries
    if tries is None:
        return "the run goes back to the queue, with all its tries"
    left = tries - sum(one.ended == kind and not one.forgiven for one in attempts)
    if left < 1:
        return "its tries are used up"
    return f"the run goes back to the queue, with {left} more of {tries} tries"


def failed_kind(folder: RunFolder) -> str | None:
    """Return the kind of a run's failure, or `None` if the run has not failed."""
    result = folder.result() or {}
    return str(result.get("kind", "exception")) if result.get("state") is RunState.FAILED else None


def failed_tasks(lab: Lab, tasks: Sequence[Task], kinds: Collection[str] = ()) -> list[Task]:
    """Return the tasks of these kinds (by default all that failed) and those failed by a parent.

    Raises:
        UserError: there is no such kind of failure.
    """
    for name in kinds:
        if name not in FAILURES:
            near = suggest(name, FAILURES)
            raise UserError(f"--retry-failed: no kind of failure {name!r}{near}")
    kinds = kinds or FAILURES
    failed: dict[str, Task] = {}
    for task in tasks:  # parents stand before their children
        kind = failed_kind(lab.run(task.run))
        follows = any(signature(parent) in failed for parent in task.spec.ancestors)
        if kind is not None and (kind in kinds or (kind == PARENT and follows)):
            failed[task.run] = task
    return list(failed.values())


def reopen(lab: Lab, task: Task) -> None:
    """Reopen a failed run: its earlier attempts no longer count as tries.

    Raises:
        Busy: another process holds the run's lock.
    """
    folder = lab.run(task.run)
    with folder.lock():
        folder.attempts.reset_retries()
        folder.reopen()
