"""Tasks still to come: cells from all over the space stand for those of later suggestions."""

from __future__ import annotations

from collections.abc import Callable

from tests.sweep.search.test_sampler import planned
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec
from tread_lab.sweep.plan.open_tasks import coming_tasks


def test_later_suggestions_are_taken_from_the_middle_of_equal_parts(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, trials=3)
    assert plan.search is not None
    cells = [plan.search.cells[number] for number in (6, 18, 30)]  # of 36
    runs = {trial.run for cell in cells for trial in plan.search.trials_of(cell)}
    assert {task.run for task in coming_tasks(plan, lab)} == runs
