"""What is still to come of a plan: its open runs, and those a search will probably ask for."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.engine.cost.training import cost
from tread_lab.records import suggestions
from tread_lab.records.lab import Lab
from tread_lab.specs.cell import Cell
from tread_lab.sweep.plan.plan import Plan, Searched
from tread_lab.sweep.trial.task import Task, with_ancestors

_PRICED = 400  # cells of a large space that its mean is taken over


@dataclass(frozen=True)
class SearchForecast:
    """How far a search is and what the rest costs, in training FLOPs of all seeds.

    Attributes:
        asked, trials: trials asked for so far, and wanted in the end.
        cells: size of the space.
        mean_flops, worst_flops: of the trials still to ask for, at the mean of the space and if
            the dearest cells came.
    """

    asked: int
    trials: int
    cells: int
    mean_flops: float
    worst_flops: float


def search_forecast(plan: Plan, lab: Lab) -> SearchForecast:
    """Price what a search has still to ask for."""
    assert plan.search is not None
    searched, before = plan.search, suggestions.read(lab.sweep(plan.name).suggestions_path)
    left = _left(searched, len(before))
    prices = sorted((_flops(searched, cell) for cell in _spread(searched, _PRICED)), reverse=True)
    mean = sum(prices) / len(prices)
    dearest = prices[:left] + prices[:1] * max(left - len(prices), 0)
    trials = min(searched.spec.trials, len(searched.cells))
    return SearchForecast(len(before), trials, len(searched.cells), left * mean, sum(dearest))


def coming_tasks(plan: Plan, lab: Lab) -> list[Task]:
    """The open runs in order; for trials not yet asked for stand cells from all over the space."""
    found = plan.open_tasks(lab)
    if plan.search is None:
        return found
    before = suggestions.read(lab.sweep(plan.name).suggestions_path)
    named = [entry.cell for entry in before]
    named += _spread(plan.search, _left(plan.search, len(before)))
    trials = [trial for cell in named for trial in plan.search.trials_of(cell)]
    tasks = with_ancestors(Task(trial.spec, plan.evaluations) for trial in trials)
    known = {task.spec for task in found}
    return found + [t for t in plan.open_of(lab, tasks) if t.spec not in known]


def begun_tasks(plan: Plan, lab: Lab) -> tuple[Task, ...]:
    """The runs that belong to the sweep so far: those of its plan, and those asked for."""
    if plan.search is None:
        return plan.tasks
    named = [entry.cell for entry in suggestions.read(lab.sweep(plan.name).suggestions_path)]
    trials = [trial for cell in named for trial in plan.search.trials_of(cell)]
    return with_ancestors(Task(t.spec, plan.evaluations) for t in (*plan.trials, *trials))


def _left(searched: Searched, before: int) -> int:
    return max(min(searched.spec.trials, len(searched.cells)) - before, 0)


def _spread(searched: Searched, count: int) -> list[Cell]:
    """So many cells at equal distances in the order of the sweep."""
    cells = searched.cells
    count = min(count, len(cells))
    return [cells[(2 * k + 1) * len(cells) // (2 * count)] for k in range(count)]


def _flops(searched: Searched, cell: Cell) -> float:
    return sum(cost(t.spec).train_flops for t in searched.trials_of(cell) if t.role == "trial")
