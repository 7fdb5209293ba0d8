"""Status of a run: the enum `RunState`, with everything that follows from each state."""

from __future__ import annotations

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
    def ended(self) -> bool:
        """Whether nothing more happens to the run unless a user asks for it."""
        return self not in (RunState.PENDING, RunState.RUNNING, RunState.INTERRUPTED)

    @property
    def measurable(self) -> bool:
        """Whether the last weights of the run mean something, so that they are evaluated."""
        return self in (RunState.COMPLETED, RunState.STOPPED)

    @property
    def label(self) -> str:
        """The state in words, as figures show it: all that have not ended look alike."""
        if not self.ended:
            return "not finished"
        return "stopped early" if self is RunState.STOPPED else self.value

    @property
    def sign(self) -> str:
        """One character for the state where there is no room for words."""
        return self.value[0].upper() if self.ended else "\u2026"

    @property
    def lacks_result(self) -> str:
        """How a run ended that nothing can be compared with, in words; empty for other states."""
        if not self.ended or self is RunState.COMPLETED:
            return ""
        return f"was {self.label}" if self is RunState.STOPPED else self.label


def without_comparison(label: str, state: RunState) -> str:
    """Return what the state of a baseline that lacks a result means for the trials it serves."""
    return f"baseline {label} {state.lacks_result}: its trials have nothing to compare with"
