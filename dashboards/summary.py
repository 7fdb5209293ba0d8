"""What lists say of a sweep: its plan in short and the states of its runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tread_lab.dashboards.views import to_suggest
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder, state_in_sweep


@dataclass(frozen=True)
class Summary:
    """A plan in short.

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
    """Return a sweep's plan in short.

    Raises:
        UserError: it cannot be read.
    """
    plan = sweep.plan()
    runs = tuple(plan.runs())
    return Summary(plan.question, len(plan.trials), plan.created, runs, to_suggest(plan))


def state_counts(lab: Lab, sweep: SweepFolder, runs: tuple[str, ...]) -> Counter[RunState]:
    """Return how many of a sweep's runs are in each state."""
    stopped = sweep.stopped()
    return Counter(state_in_sweep(lab.run(run).state(), run, stopped) for run in runs)
