"""Where a run stands by its record alone: state, why, attempts, step, and when it last moved on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tread_lab.records.attempts import Attempt
from tread_lab.records.durable import modified
from tread_lab.records.endings import ENDINGS
from tread_lab.records.lab import RunFolder
from tread_lab.records.stopped_early import Stopped, state_in_sweep

# The state of a baseline that ended without a result, in words.
WITHOUT_RESULT = {"diverged": "diverged", "failed": "failed", "stopped": "was stopped early"}


def alone(label: str, state: str) -> str:
    """What follows for the trials of a baseline that ended in one of `WITHOUT_RESULT`."""
    return f"baseline {label} {WITHOUT_RESULT[state]}: its trials have nothing to compare with"


@dataclass(frozen=True)
class Standing:
    """Where a run stands.

    Attributes:
        state: pending, running, interrupted, or the terminal state.
        kind: the kind of its failure, or how its last attempt ended if that went wrong.
        reason: one line; empty if nothing went wrong.
        step: optimizer steps that are logged.
        moved: when there was progress last, in seconds; nothing before the first attempt.
    """

    run: str
    state: str
    kind: str
    reason: str
    attempts: tuple[Attempt, ...]
    step: int
    moved: float | None

    def tree(self) -> dict[str, Any]:
        """For scripts."""
        attempts = [{"n": a.n, "ended": a.ended, "reason": a.reason} for a in self.attempts]
        return {**vars(self), "attempts": attempts}


def standing(folder: RunFolder, stopped: Mapping[str, Stopped] | None = None) -> Standing:
    """Read it.

    Args:
        stopped: runs that a sweep has stopped early; it sees them as such.
    """
    result, state = folder.result() or {}, folder.state()
    attempts = tuple(folder.attempts.read())
    kind, reason = result.get("kind", ""), result.get("reason", "")
    wrong = [a for a in attempts[-1:] if a.ended and _is_wrong(a.ended)]
    if wrong and not reason:
        kind, reason = wrong[0].ended, wrong[0].reason
    kind = kind or ("exception" if state == "failed" else "")
    step = folder.step()
    if stopped and state_in_sweep(state, folder.name, stopped) != state:
        why = stopped[folder.name]
        state, kind, reason, step = "stopped", "early", why.reason, why.step
    line = (str(reason).strip().splitlines() or [""])[0]
    return Standing(folder.name, state, kind, line, attempts, step, _moved(folder))


def _is_wrong(kind: str) -> bool:
    return kind not in ENDINGS or ENDINGS[kind].wrong  # a later version may know more kinds


def _moved(folder: RunFolder) -> float | None:
    paths = (
        folder.heartbeat_path,
        folder.log_path,
        folder.attempts.path,
        folder.path / "result.json",
    )
    return max((time for path in paths if (time := modified(path))), default=None)
