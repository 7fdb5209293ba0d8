"""Tasks still to come of a plan: its open tasks, and those that a search will probably suggest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.engine.cost.training import cost
from tread_lab.records import suggestions
from tread_lab.records.lab import Lab
from tread_lab.specs.cell import Cell
from tread_lab.specs.trials import Trial
from tread_lab.sweep.plan.plan import Plan, SearchSpace
from tread_lab.sweep.trial.task import Task

_SAMPLED_CELLS = 400  # of a large space, for its mean FLOPs


@dataclass(frozen=True)
class SearchForecast:
    """How far a search is, and the training FLOPs of all trials that it has not suggested yet.

    Attributes:
        suggested, trials: cells suggested so far, and in the end.
        cells: size of the space.
        mean_flops, worst_flops: at the mean of the space, and if its dearest cells came.
    """

    suggested: int
    trials: int
    cells: int
    mean_flops: float
    worst_flops: float


def search_forecast(plan: Plan, lab: Lab) -> SearchForecast:
    """Return how far the search of a plan is and what the rest of it costs."""
    assert plan.search is not None
    searched, suggested = plan.search, len(_suggested_cells(plan, lab))
    sample = _spread(searched.cells, _SAMPLED_CELLS)
    flops = sorted((_flops(searched.trials_of(cell)) for cell in sample), reverse=True)
    trials = min(searched.spec.trials, len(searched.cells))
    left = max(trials - suggested, 0)
    worst = sum(flops[:left]) + flops[0] * max(left - len(flops), 0)
    return SearchForecast(
        suggested, trials, len(searched.cells), left * sum(flops) / len(flops), worst
    )


def pending_tasks(plan: Plan, lab: Lab) -> list[Task]:
    """Return the open tasks in order; cells from all over the space stand for later suggestions."""
    tasks = plan.open_tasks(lab)
    if plan.search is None:
        return tasks
    cells = _suggested_cells(plan, lab)
    suggested = set(map(repr, cells))
    later = [cell for cell in plan.search.cells if repr(cell) not in suggested]
    cells += _spread(later, plan.search.spec.trials - len(cells))
    runs = {task.run for task in tasks}
    searched_tasks = plan.open_of(lab, plan.tasks_of(_trials_of(plan.search, cells)))
    return tasks + [task for task in searched_tasks if task.run not in runs]


def started_tasks(plan: Plan, lab: Lab) -> tuple[Task, ...]:
    """Return the tasks of the sweep so far: those of its plan and of the suggested cells."""
    if plan.search is None:
        return plan.tasks
    suggested = _trials_of(plan.search, _suggested_cells(plan, lab))
    return plan.tasks_of([*plan.trials, *suggested])


def _suggested_cells(plan: Plan, lab: Lab) -> list[Cell]:
    return [entry.cell for entry in suggestions.read(lab.sweep(plan.name).suggestions_path)]


def _trials_of(searched: SearchSpace, cells: list[Cell]) -> list[Trial]:
    return [trial for cell in cells for trial in searched.trials_of(cell)]


def _spread(cells: Sequence[Cell], count: int) -> list[Cell]:
    """Return at most `count` of the cells, at equal distances in their order."""
    count = min(count, len(cells))
    return [cells[(2 * k + 1) * len(cells) // (2 * count)] for k in range(count)]


def _flops(trials: tuple[Trial, ...]) -> float:
    return sum(cost(trial.spec).train_flops for trial in trials if trial.role == "trial")
