"""Status of runs, read from their records: state, reason, attempts, step and last progress."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tread_lab.records.attempts import EXIT_REASONS, Attempt
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.log import read_entries
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Stopped, state_in_sweep

_TAIL = 4096  # bytes at the end of a log, which hold its last entries


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        kind: the kind of its failure, or how its last attempt ended if something went wrong.
        reason: one line; empty if nothing went wrong.
        step: optimizer steps that are logged.
        moved: when the run last made progress, in seconds; `None` before the first attempt.
    """

    run: str
    state: RunState
    kind: str
    reason: str
    attempts: tuple[Attempt, ...]
    step: int
    moved: float | None

    def tree(self) -> dict[str, Any]:
        """Return the status as plain values, for scripts."""
        attempts = [{"n": a.n, "ended": a.ended, "reason": a.reason} for a in self.attempts]
        return {**vars(self), "attempts": attempts}


def run_status(folder: RunFolder, stopped: Mapping[str, Stopped] | None = None) -> RunStatus:
    """Read the status of a run.

    Args:
        stopped: the runs that a sweep has stopped early, if the sweep's view is asked for.
    """
    result, state = folder.result() or {}, folder.state()
    attempts = tuple(folder.attempts.read())
    kind, reason = result.get("kind", ""), result.get("reason", "")
    last = attempts[-1] if attempts else None
    wrong = last is not None and (last.ended not in EXIT_REASONS or EXIT_REASONS[last.ended].wrong)
    if last is not None and last.ended and wrong and not reason:  # a later version may know more
        kind, reason = last.ended, last.reason
    kind = kind or ("exception" if state is RunState.FAILED else "")
    step = folder.step()
    if stopped and state_in_sweep(state, folder.name, stopped) is not state:
        why = stopped[folder.name]
        state, kind, reason, step = RunState.STOPPED, "early", why.reason, why.step
    line = (str(reason).strip().splitlines() or [""])[0]
    return RunStatus(folder.name, state, kind, line, attempts, step, _moved(folder, attempts))


def run_states(
    lab: Lab, runs: Iterable[str], stopped: Mapping[str, Stopped] | None = None
) -> dict[str, RunState]:
    """Return the state of each run; only those that have a folder are looked at.

    Args:
        stopped: runs that the sweep has stopped early.
    """
    try:
        begun = set(os.listdir(lab.root / "runs"))  # noqa: PTH208 (the names are enough)
    except FileNotFoundError:
        begun = set()
    states = ((run, lab.run(run).state() if run in begun else RunState.PENDING) for run in runs)
    return {run: state_in_sweep(state, run, stopped or {}) for run, state in states}


def _moved(folder: RunFolder, attempts: Iterable[Attempt]) -> float | None:
    """Return when a run made progress, by its records: copying a lab makes its files new."""
    recorded = [attempt.time for attempt in attempts]
    size = folder.log_path.stat().st_size if folder.log_path.exists() else 0
    last = read_entries(folder.log_path, max(size - _TAIL, 0))
    recorded += [entry.time for entry in last]
    if folder.locked or not recorded:
        paths = (folder.heartbeat_path, folder.log_path, folder.path / "result.json")
        recorded += [time for path in paths if (time := modified(path)) is not None]
    return max(recorded, default=None)
