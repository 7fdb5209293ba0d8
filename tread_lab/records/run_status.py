"""Status of runs, read from their records: state, reason, attempts, step and last progress."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tread_lab.records.attempts import ENDED_WELL, Attempt
from tread_lab.records.durable import modified
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Judgement, state_in_sweep


@dataclass(frozen=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        kind: the kind of its failure, or how its last attempt ended if something went wrong.
        reason: one line; empty if nothing went wrong.
        step: optimizer steps that are logged.
        moved: when its record last grew, in seconds; `None` before the first attempt.
    """

    run: str
    state: RunState
    kind: str
    reason: str
    attempts: tuple[Attempt, ...]
    step: int
    moved: float | None


def run_status(folder: RunFolder, stopped: Mapping[str, Judgement] | None = None) -> RunStatus:
    """Read the status of a run.

    Args:
        stopped: the runs that a sweep has stopped early, if the sweep's view is asked for.
    """
    result, state, step = folder.result() or {}, folder.state(), folder.step()
    attempts = tuple(folder.attempts())
    kind, reason = result.get("kind", ""), result.get("reason", "")
    if attempts and attempts[-1].ended not in ("", *ENDED_WELL) and not reason:
        kind, reason = attempts[-1].ended, attempts[-1].reason
    if stopped and state_in_sweep(state, folder.name, stopped) is not state:
        why = stopped[folder.name]
        state, kind, reason, step = RunState.STOPPED, "early", why.reason, why.step
    line = (str(reason).strip().splitlines() or [""])[0]
    written = map(modified, (folder.attempts_path, folder.log_path, folder.path / "result.json"))
    moved = max(filter(None, written), default=None)
    return RunStatus(folder.name, state, kind, line, attempts, step, moved)


def run_states(
    lab: Lab, runs: Iterable[str], stopped: Mapping[str, Judgement] | None = None
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
