"""States of runs, and their attempts: where each ran, with what, and how it ended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tread_lab.config.errors import UserError
from tread_lab.records.durable import FULL, DiskFull

TRIES = {"exception": 2, "died": 3}  # attempts of one session that may end so
FAILURES = (*TRIES, "parent")  # kinds of a failed run
SENTENCES: Mapping[str, str] = {  # how an attempt or a run ended
    "completed": "reached its result",
    "diverged": "its loss was not finite any more, which is a result",
    "paused": "it reached a rung of early stopping",
    "interrupted": "it was asked to stop",
    "disk": "the disk was full",
    "mistake": "something is missing that only the user can provide",
    "oom": "memory did not suffice; lower execution.micro_batch, which keeps the run",
    "died": "its process ended without a word",
    "exception": "an exception was raised",
    "parent": "the run that it starts from has no weights",
}
ADVICE: Mapping[str, str] = {  # how an attempt or a run ended -> remedy
    "oom": "Lower execution.micro_batch, which keeps the run, and run the sweep again.",
    "parent": "See why the parent run failed; --retry-failed runs both again.",
    "failed": "Mend what the traceback names; --retry-failed runs it again.",
    "diverged": "Diverged runs are not repeated. Try a lower train.lr.",
    "early": "Stopped early: worse than others at the same step. `stop_early: null` turns it off.",
    "interrupted": "Run the sweep again; it continues from the last checkpoint.",
}
ENDED_WELL = ("completed", "interrupted")
# The last is of CUDA's libraries, which allocate beside torch.
_NO_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "memoryerror"),
    "_status_alloc_failed",
)


class ProcessLost(RuntimeError):
    """Another process of the run has ended."""


def kind_of(error: BaseException) -> str:
    """Return the kind of end caused by `error`, a key of `SENTENCES`."""
    if isinstance(error, DiskFull) or getattr(error, "errno", None) in FULL:
        return "disk"
    if isinstance(error, UserError):
        return "mistake"
    if not isinstance(error, Exception):  # closed, or a second Ctrl-C
        return "interrupted"
    if _lacks_memory(error):
        return "oom"
    return "died" if isinstance(error, ProcessLost) else "exception"


def _lacks_memory(error: BaseException) -> bool:
    """Return whether it is an error of Python, of torch on a device, of torch's CPU allocator, or
    reports one in another process."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error).lower() if isinstance(error, RuntimeError) else ""
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or any(p in text for p in _NO_MEMORY)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at a run.

    Attributes:
        n: 1, 2, ..., in order of attempts.
        driver: session of its driver.
        host, pid: its process.
        time: start time, in seconds.
        runs_per_device: maximum of runs on its device.
        devices: number of its devices.
        fingerprint: digests of code, data and weights that determine its results, by name.
        origin: code version, packages and device, for training.
        ended: a key of `SENTENCES`; empty during the attempt, or if its process has died.
    """

    n: int
    driver: str = ""
    host: str = ""
    pid: int = 0
    time: float = 0.0
    runs_per_device: int = 1
    devices: int = 1
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    ended: str = ""
    reason: str = ""
    traceback: str = ""


def attempts_of(lines: Iterable[dict[str, Any]]) -> list[Attempt]:
    """Return the attempts of a record: one line opens an attempt, a later one closes it."""
    attempts: dict[int, dict[str, Any]] = {}
    for line in lines:
        attempts[line["n"]] = attempts.get(line["n"], {}) | line
    return [Attempt(**attempts[n]) for n in sorted(attempts)]


class RunState(StrEnum):
    """State of a run; the value is stored on disk."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether the run has ended; only a user can reopen it."""
        return self not in (RunState.PENDING, RunState.RUNNING, RunState.INTERRUPTED)

    @property
    def measurable(self) -> bool:
        """Whether the last weights of the run can be evaluated."""
        return self is RunState.COMPLETED

    @property
    def label(self) -> str:
        """The state in words for figures; all unfinished states are equal."""
        if not self.ended:
            return "not finished"
        return "stopped early" if self is RunState.STOPPED else self.value

    @property
    def sign(self) -> str:
        """The state as one character."""
        return self.value[0].upper() if self.ended else "\u2026"

    @property
    def lacks_result(self) -> str:
        """How a run without a result ended, in words; empty for other states."""
        if not self.ended or self is RunState.COMPLETED:
            return ""
        return f"was {self.label}" if self is RunState.STOPPED else self.label


def without_comparison(label: str, state: RunState) -> str:
    """Return the reason of trials whose baseline has no result."""
    return f"baseline {label} {state.lacks_result}: its trials have nothing to compare with"


def state_in_sweep(state: RunState, run: str, stopped: Collection[str]) -> RunState:
    """Return the state of a run in the sweep that stopped it."""
    return RunState.STOPPED if state is RunState.INTERRUPTED and run in stopped else state


def stop_reason(step: int) -> str:
    """Return why a run was stopped early at a step."""
    return f"at step {step} other cells had a lower held-out loss"
