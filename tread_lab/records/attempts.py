"""Attempts at a run: how each ended, and what follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tread_lab.records.durable import FULL, DiskFull
from tread_lab.records.log import append_line, read_lines
from tread_lab.specs.errors import UserError


class ProcessLost(RuntimeError):
    """Another process of the run has ended."""


# The last is of CUDA's libraries, which allocate beside torch.
_NO_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "memoryerror"),
    "_status_alloc_failed",
)


@dataclass(frozen=True, kw_only=True)
class ExitReason:
    """What follows from one way in which an attempt ends.

    Attributes:
        sentence: what has happened.
        tries: attempts that may end so before the run has failed; `None` if it never counts, since
            it is a result or not the run's doing.
        fails: whether a run can have failed of it, so that `--retry-failed` may name it.
        wrong: whether something went wrong that `status` shows.
        recognises: whether an exception ends an attempt so; `None` if no exception does.
    """

    sentence: str
    tries: int | None = None
    fails: bool = False
    wrong: bool = True
    recognises: Callable[[BaseException], bool] | None = None


def _lacks_memory(error: BaseException) -> bool:
    """Whether it is an error of Python, of torch on a device, of torch's CPU allocator, or tells
    of one in another process."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or any(p in text for p in _NO_MEMORY)


# An exception is of the first kind that recognises it.
EXIT_REASONS: Mapping[str, ExitReason] = {
    "completed": ExitReason(sentence="reached its result", wrong=False),
    "diverged": ExitReason(sentence="its loss was not finite any more, which is a result"),
    "disk": ExitReason(
        sentence="the disk was full",
        recognises=lambda e: isinstance(e, DiskFull) or getattr(e, "errno", None) in FULL,
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
        sentence="memory did not suffice; lower execution.micro_batch, which keeps the run",
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


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at a run.

    Attributes:
        n: 1, 2, ...; the order of attempts, whatever the clocks say.
        driver: which session of a driver started it.
        node, host, pid: where it ran; `node` is Ray's id of the node, else the host.
        time: when it began, in seconds.
        runs_per_device: most that shared its device.
        devices: how many it had.
        fingerprint: digests of the code, data and weights that decide its results, by name.
        phase: `train` or `evaluate`, where it was when it ended.
        ended: a key of `EXIT_REASONS`; empty while the attempt goes on, or if its process has died.
        forgiven: the user has asked since to try the run again.
    """

    n: int
    driver: str = ""
    node: str = ""
    host: str = ""
    pid: int = 0
    time: float = 0.0
    runs_per_device: int = 1
    devices: int = 1
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    phase: str = "train"
    ended: str = ""
    reason: str = ""
    traceback: str = ""
    forgiven: bool = False


# Names of fields in the record, where they are others.
_ON_DISK = {"runs_per_device": "packed", "fingerprint": "made_with"}
_FIELDS = {_ON_DISK.get(field.name, field.name): field.name for field in fields(Attempt)}


class Attempts:
    """The attempts at one run, in the file `path`; the last line about an attempt counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Attempt]:
        """Return all attempts in order."""
        return attempts_of(read_lines(self.path))

    def open(self, **facts: Any) -> Attempt:
        """Begin the next attempt."""
        n = max((attempt.n for attempt in self.read()), default=0) + 1
        attempt = Attempt(n=n, time=time.time(), **facts)
        tree = {_ON_DISK.get(name, name): value for name, value in vars(attempt).items()}
        append_line(self.path, {"event": "opened", **tree})
        return attempt

    def close(self, attempt: Attempt, ended: str, **facts: Any) -> Attempt:
        """Record how an attempt ended."""
        assert ended in EXIT_REASONS, ended
        append_line(self.path, {"event": "closed", "n": attempt.n, "ended": ended, **facts})
        return replace(attempt, ended=ended, **facts)

    def reset_retries(self) -> None:
        """Let no earlier attempt count against the run any more; all stay in the record."""
        append_line(self.path, {"event": "forgiven", "time": time.time()})


def attempts_of(lines: Iterable[dict[str, Any]]) -> list[Attempt]:
    """Return the attempts that the lines of a record describe."""
    attempts: dict[int, dict[str, Any]] = {}
    for line in lines:
        if line["event"] == "forgiven":
            attempts = {n: {**facts, "forgiven": True} for n, facts in attempts.items()}
            continue
        facts = {_FIELDS[key]: value for key, value in line.items() if key in _FIELDS}
        attempts[line["n"]] = attempts.get(line["n"], {}) | facts
    return [Attempt(**attempts[n]) for n in sorted(attempts)]
