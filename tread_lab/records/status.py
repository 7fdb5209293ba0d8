"""Status of a run: the enum `RunState`, with everything that follows from each state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """The state of a run; its value is the word that stands on disk."""

    PENDING = "pending"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    FAILED = "failed"

    @property
    def label(self) -> str:
        """The state in words, as figures show it: all that have not ended look alike."""
        return _FACTS[self].label

    @property
    def sign(self) -> str:
        """One character for the state where there is no room for words."""
        return _FACTS[self].sign

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to the run unless a user asks for it."""
        return _FACTS[self].ended

    @property
    def measurable(self) -> bool:
        """Whether the last weights of the run mean something, so that they are evaluated."""
        return _FACTS[self].measurable

    @property
    def lacks_result(self) -> str:
        """How a run ended that nothing can be compared with, in words; empty for other states."""
        return _FACTS[self].lacks_result


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What follows from a state; `RunState` documents each."""

    label: str = "not finished"
    sign: str = "\u2026"
    ended: bool = False
    measurable: bool = False
    lacks_result: str = ""


_FACTS: Mapping[RunState, _Facts] = {
    RunState.PENDING: _Facts(),
    RunState.RUNNING: _Facts(),
    RunState.INTERRUPTED: _Facts(),
    RunState.COMPLETED: _Facts(label="completed", sign="C", ended=True, measurable=True),
    RunState.STOPPED: _Facts(
        label="stopped early",
        sign="S",
        ended=True,
        measurable=True,
        lacks_result="was stopped early",
    ),
    RunState.DIVERGED: _Facts(label="diverged", sign="D", ended=True, lacks_result="diverged"),
    RunState.FAILED: _Facts(label="failed", sign="F", ended=True, lacks_result="failed"),
}


def without_comparison(label: str, state: RunState) -> str:
    """Return what the state of a baseline that lacks a result means for the trials it serves."""
    return f"baseline {label} {state.lacks_result}: its trials have nothing to compare with"
