"""One attempt at a run: opened and closed in its record, and what is read from one left open."""

from __future__ import annotations

import contextlib
import os
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from tread_lab.engine.provenance import made_with
from tread_lab.records.attempts import Attempt
from tread_lab.records.durable import disk_error
from tread_lab.records.endings import kind_of
from tread_lab.records.lab import RunFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.trial.watchdog import Watchdog

_SESSION = uuid.uuid4().hex[:12]


@dataclass(frozen=True)
class Place:
    """Where an attempt runs, and what its executor knows about the others.

    Attributes:
        driver: the session of the driver, this process where absent.
        node: Ray's id of the node, else the host.
        alive: the nodes of the cluster; nothing where there is none to leave.
        whole: whether the attempt has a device to itself.
        hang_timeout: seconds without progress after which it is ended; 0 for never, derived from
            the run's own speed where absent.
    """

    driver: str = _SESSION
    node: str = os.uname().nodename
    alive: frozenset[str] | None = None
    whole: bool = True
    hang_timeout: float | None = None


class Course:
    """An attempt under way; it hears of progress, of the phase, and of how things end."""

    def __init__(self, watchdog: Watchdog) -> None:
        self.phase, self.ended = "train", "completed"
        self._watchdog, self.sign = watchdog, watchdog.sign

    def measures(self) -> None:
        """Training is over."""
        self.phase = "evaluate"
        self._watchdog.anew()


@contextlib.contextmanager
def attempt(folder: RunFolder, spec: RunSpec, place: Place) -> Iterator[Course]:
    """Record the block as an attempt, with the exception that ended it.

    Raises:
        DiskFull: any write found the disk full.
    """
    where = {"driver": place.driver, "node": place.node, "whole": place.whole}
    process = {"host": os.uname().nodename, "pid": os.getpid()}
    opened = folder.attempts.open(**where, **process, made_with=made_with(spec))
    watchdog = Watchdog(folder.stack_dump(opened.n), folder.heartbeat_path, place.hang_timeout)
    course = Course(watchdog)
    try:
        with watchdog:
            yield course
    except BaseException as error:
        ended = kind_of(error)
        facts = {} if ended == "interrupted" else _told(error)
        with contextlib.suppress(UserError):  # a full disk has no room for this either
            folder.attempts.close(opened, ended, phase=course.phase, **facts)
        if isinstance(error, OSError) and ended == "disk":
            raise disk_error(error, folder.path) from error
        raise
    folder.attempts.close(opened, course.ended, phase=course.phase)


def settled(folder: RunFolder, place: Place) -> list[Attempt]:
    """The attempts at a run that count, the last one closed if it was left open.

    Measuring a trained run is tried anew by every driver: what was missing may be there now. Only
    the holder of the run's claim may ask: then an attempt left open has no process any more.
    """
    attempts = folder.attempts.read()
    if attempts and not attempts[-1].ended:
        ended, reason = _why_open(folder, attempts[-1], place)
        attempts[-1] = folder.attempts.close(attempts[-1], ended, reason=reason)
    trained = folder.result() is not None
    return [a for a in attempts if a.driver == place.driver or not trained]


def _why_open(folder: RunFolder, left: Attempt, place: Place) -> tuple[str, str]:
    """How a process ended that could not say so itself."""
    where, dump = f"process {left.pid} on {left.host}", folder.stack_dump(left.n)
    if dump.exists() and dump.stat().st_size:
        return "hung", f"{where} made no progress; where it stood is in {dump}"
    dump.unlink(missing_ok=True)
    if place.alive is not None and left.node not in place.alive:
        return "lost", f"node {left.node[:12]} of {where} has left the cluster"
    if left.driver != place.driver:
        return "orphaned", f"the driver of {where} ended first"
    return "died", f"{where} was killed"


def _told(error: BaseException) -> dict[str, str]:
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    trace = "" if isinstance(error, UserError) else "".join(traceback.format_exception(error))
    return {"reason": text, "traceback": trace}
