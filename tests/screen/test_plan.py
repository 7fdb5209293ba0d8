"""The lines of a plan: runs that do not fit the budget are named up to five, then counted."""

from __future__ import annotations

from collections.abc import Callable

from tests.sweep.search.test_budget import planned
from tread_lab.records.lab import Lab
from tread_lab.screen.plan import budget_lines
from tread_lab.specs import RunSpec
from tread_lab.sweep.search.budget import open_budget


def test_runs_that_do_not_fit_are_named_then_counted(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    plan = planned(tiny, axes={"route": {"start": 0, "end": "0..7"}}, budget={"trials": 1})
    budget = open_budget(lab, plan, lambda task: None)
    fits, named = budget_lines(plan, budget, plan.open_tasks(lab), 1)
    assert fits == "budget: 1 trial (0 started): 2 of 9 open runs fit"
    routes = "; ".join(f"0->{end} s=0.5 seed 0" for end in range(1, 6))
    assert named == f"not started, in the order of the plan: {routes} and 2 more"
