"""What lists say of a sweep, its plan in short and the states of its runs: read where changed."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from tread_lab.dashboards.live import stored_plan
from tread_lab.dashboards.views import to_suggest
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder, state_in_sweep


@dataclass(frozen=True)
class Summary:
    """A plan in short: those of many sweeps are kept.

    Attributes:
        trials: how many there are so far.
        created: when the plan was made, in seconds; `None` of an old one.
        runs: each once, parents among them.
        to_suggest: the runs that a search has yet to suggest.
    """

    question: str
    trials: int
    created: float | None
    runs: tuple[str, ...]
    to_suggest: int


def summary(sweep: SweepFolder) -> Summary:
    """Return a sweep's plan in short, read once for each plan.

    Raises:
        UserError: it cannot be read.
    """
    return _summary(sweep, sweep.stamp, sweep.suggested)


@lru_cache(maxsize=1000)
def _summary(sweep: SweepFolder, *_stamps: float) -> Summary:
    plan = stored_plan(sweep)
    runs = tuple(plan.runs())
    return Summary(plan.question, len(plan.trials), plan.created, runs, to_suggest(plan))


def state_counts(lab: Lab, sweep: SweepFolder, runs: tuple[str, ...]) -> Counter[RunState]:
    """Return how many of a sweep's runs are in each state; how one ended is read once."""
    stopped = sweep.stopped()
    return Counter(state_in_sweep(_state(lab.run(run)), run, stopped) for run in runs)


def _state(run: RunFolder) -> RunState:
    try:
        facts = os.stat(f"{run.path}/result.json")  # noqa: PTH116 (of each run of a lab)
    except OSError:
        begun = os.path.isdir(run.path)  # noqa: PTH112
        return run.state() if begun else RunState.PENDING
    return _ended_as(run, facts.st_ino, facts.st_mtime_ns, facts.st_size) or run.state()


@lru_cache(maxsize=200_000)
def _ended_as(run: RunFolder, *_stamps: int) -> RunState | None:
    """Return the state in which a run has ended; `None` if the file that says so is damaged."""
    result = run.result()
    return None if result is None else RunState(result["state"])
