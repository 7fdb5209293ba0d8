"""Exit reasons of an attempt, its failures among them: one table of what follows from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tread_lab.records.durable import FULL, DiskFull
from tread_lab.specs.errors import UserError


class ProcessLost(RuntimeError):
    """Another process of the run has ended."""


_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


@dataclass(frozen=True, kw_only=True)
class ExitReason:
    """What belongs to one way of exit_reason.

    Attributes:
        sentence: what has happened.
        tries: attempts that may end so before the run has failed; `None` if it never counts, since
            it is a result or not the run's doing.
        fails: whether a run can have failed of it, so that `--retry-failed` may name it.
        wrong: whether something went wrong that `status` shows.
        whole_device: whether the next attempt gets a device to itself.
        recognises: whether an exception ends an attempt so; `None` if no exception does.
    """

    sentence: str
    tries: int | None = None
    fails: bool = False
    wrong: bool = True
    whole_device: bool = False
    recognises: Callable[[BaseException], bool] | None = None


def _disk_is_full(error: BaseException) -> bool:
    return isinstance(error, DiskFull) or getattr(error, "errno", None) in FULL


def _lacks_memory(error: BaseException) -> bool:
    """Whether it is an error of Python, of torch on a device, or of torch's CPU allocator."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or any(p in text for p in _NO_MEMORY)


# An exception is of the first kind that recognises it.
EXIT_REASONS: Mapping[str, ExitReason] = {
    "completed": ExitReason(sentence="reached its result", wrong=False),
    "diverged": ExitReason(sentence="its loss was not finite any more, which is a result"),
    "disk": ExitReason(sentence="the disk was full", recognises=_disk_is_full),
    # Of earlier versions; a node that differs now refuses before an attempt opens.
    "mismatch": ExitReason(
        sentence="its node has other code, packages, data or weights than the driver",
    ),
    "mistake": ExitReason(
        sentence="something is missing that only the user can provide",
        recognises=lambda error: isinstance(error, UserError),
    ),
    "interrupted": ExitReason(
        sentence="it was asked to stop",
        wrong=False,
        recognises=lambda error: not isinstance(error, Exception),  # closed, or a second Ctrl-C
    ),
    "oom": ExitReason(
        sentence="memory did not suffice",
        tries=2,
        fails=True,
        whole_device=True,
        recognises=_lacks_memory,
    ),
    "died": ExitReason(
        sentence="its process was killed",
        tries=3,
        fails=True,
        recognises=lambda error: isinstance(error, ProcessLost),
    ),
    "exception": ExitReason(
        sentence="an exception was raised",
        tries=2,
        fails=True,
        recognises=lambda error: isinstance(error, Exception),
    ),
    "hung": ExitReason(sentence="it made no progress and was ended", tries=2, fails=True),
    "lost": ExitReason(sentence="its node has left the cluster"),
    "orphaned": ExitReason(sentence="its driver ended first"),
    "parent": ExitReason(sentence="the run that it starts from has no weights", fails=True),
}
FAILURES = tuple(kind for kind, exit_reason in EXIT_REASONS.items() if exit_reason.fails)


def kind_of(error: BaseException) -> str:
    """Return how an attempt ends that `error` ended."""
    signs = ((kind, exit_reason.recognises) for kind, exit_reason in EXIT_REASONS.items())
    return next(kind for kind, recognises in signs if recognises and recognises(error))
