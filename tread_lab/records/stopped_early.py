"""Runs that a sweep stopped early: a fact about the sweep, so that no other takes them for ended.

Such a run has a checkpoint and no result. A sweep that needs all of it takes it up from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tread_lab.records.lines import append_line, read_lines
from tread_lab.records.status import RunState


@dataclass(frozen=True)
class Stopped:
    """At which step a sweep stopped one of its runs, and why."""

    run: str
    step: int
    reason: str


def append(path: Path, stopped: Stopped) -> None:
    """Record that a run was stopped."""
    append_line(path, vars(stopped))


def read(path: Path) -> dict[str, Stopped]:
    """Return by run where each was stopped last."""
    return {
        tree["run"]: Stopped(tree["run"], tree["step"], tree["reason"])
        for tree in read_lines(path)
        if {"run", "step", "reason"} <= tree.keys()
    }


def state_in_sweep(state: RunState, run: str, stopped: Mapping[str, Stopped]) -> RunState:
    """Return the state of a run as the sweep that stopped it sees it."""
    return RunState.STOPPED if state is RunState.INTERRUPTED and run in stopped else state
