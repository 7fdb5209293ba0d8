"""A budget is kept: what does not fit is not started, and a larger one goes on where it ended."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.pretender import Pretender
from tests.sweep.plans import DEEP, plan_of, tiny
from tread_lab.engine.cost.training import cost, executed_flops
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import Stopped, Stopwatch, seconds_spent
from tread_lab.specs.labels import place_label
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.search.budget import Budget, BudgetedQueue, Spent
from tread_lab.sweep.search.search_queue import SearchQueue
from tread_lab.sweep.trial.task import ListQueue, Task

LONG = 100.0  # seconds of a run, as far as the budget knows


def untimed(task: Task) -> None:
    """Nothing is known of how long runs take."""


def planned(**more: Any) -> Plan:
    axes = {"route": {"start": 0, "end": "0..5"}}
    return plan_of(tiny(model=DEEP), "budgeted", **{"axes": axes, **more})


def carried_out(
    lab: Lab, plan: Plan, seconds: float | None = None, *, slots: int = 1
) -> tuple[list[str], Any]:
    """The routes of what was carried out, and the queue."""
    folder, done = lab.sweep("budgeted"), Pretender(lab, slots)
    budget = Budget(lab, plan, lambda task: seconds)
    watch = Stopwatch(folder.spent_path)
    searched = plan.search_spec is not None
    tasks = SearchQueue(lab, plan) if searched else ListQueue(plan.open_tasks(lab))
    queue = BudgetedQueue(tasks, budget, watch)
    done.run(queue)
    return [str(task.spec.routes[0]) if task.spec.routes else "dense" for task in done.done], queue


def test_flops_are_spent_in_the_order_of_the_plan(lab: Lab) -> None:
    flops = [cost(task.spec).train_flops for task in planned().tasks]
    plan = planned(budget={"flops": sum(flops[:4]) + 1})
    budget = Budget(lab, plan, untimed)
    fitting, left = budget.split(plan.open_tasks(lab), 2)
    assert len(fitting) == 4 and len(left) == 3
    done, queue = carried_out(lab, plan)
    assert done == ["dense", "0->0", "0->1", "0->2"]
    assert queue.closed and queue.left.startswith("3 runs left")


def test_what_was_spent_counts_and_a_larger_budget_goes_on(lab: Lab) -> None:
    assert len(carried_out(lab, planned(budget={"trials": 2}))[0]) == 3
    assert carried_out(lab, planned(budget={"trials": 2}))[0] == []
    again, queue = carried_out(lab, planned(budget={"trials": 5}))
    assert len(again) == 3 and queue.closed
    plan = planned(budget={"trials": 6})
    budget, (baseline, *_, last) = Budget(lab, plan, untimed), plan.tasks
    budget.admit(baseline)  # which is no trial
    assert budget.spent.trials == 5 and budget.fits(last, 0.0)
    folder = lab.run_of(last.spec)
    folder.create(last.spec)
    folder.attempts.close(folder.attempts.open(), "exception")  # before its first entry
    assert Budget(lab, plan, untimed).spent.trials == 6
    rest, queue = carried_out(lab, planned(budget={}))
    assert len(rest) == 1 and not queue.closed
    small = planned(budget={"trials": 1, "flops": 1})
    budget = Budget(lab, small, untimed)
    assert budget.fits(last, 0.0), "what is only measured takes none of them"
    plan = planned(axes={"route": ["0->1"], "rate": [0, 0.25]}, budget={"trials": 1})
    assert carried_out(lab, plan)[0] == ["0->1"], "the rate 0 is the baseline's run"


@pytest.mark.parametrize(
    ("hours", "seconds", "spent", "slots", "fitting"),
    [
        (250 / 3600, LONG, 0.0, 1, 2),
        (250 / 3600, LONG, 0.0, 2, 4),
        (1.0, LONG, 3350.0, 1, 2),  # by earlier sessions
        (10.0, 18000.0, 0.0, 1, 2),  # exactly
        (10.0, 18000.0, 1.8, 1, 1),
        (1.0, None, 3600.0, 1, 7),  # of unknown length: they are taken to end at once
        (1.0, None, 3603.0, 1, 0),
    ],
)
def test_a_run_that_will_not_end_within_the_hours_is_not_started(
    hours: float, seconds: float | None, spent: float, slots: int, fitting: int, lab: Lab
) -> None:
    plan = planned(budget={"hours": hours})
    budget = Budget(lab, plan, lambda task: seconds)
    budget.spent = Spent(0.0, spent / 3600, 0)
    parts = budget.split(plan.open_tasks(lab), slots)
    assert [len(part) for part in parts] == [fitting, 7 - fitting]
    watch = Stopwatch(lab.sweep("budgeted").spent_path)
    watch._started -= 7200.0
    watch.note(now=True)
    assert Budget(lab, plan, untimed).spent.hours == pytest.approx(2.0, abs=3e-3)


@pytest.mark.parametrize(("slots", "early"), [(1, None), (4, None), (4, StopEarlySpec())])
def test_a_search_ends_with_its_budget_and_goes_on_with_a_larger_one(
    slots: int, early: StopEarlySpec | None, lab: Lab
) -> None:
    """The last cell that it suggests may lack a seed, which is the first run of the larger one."""
    search = {"trials": 6, "startup": 3, "parallel": 3, "objectives": ["heldout/loss"]}
    plan = planned(search=search, seeds=[0, 1], budget={"trials": 5})
    plan = replace(plan, stop_early=early)
    done, queue = carried_out(lab, plan, slots=slots)
    assert len(done) == 2 + 5 and queue.closed
    last = place_label(lab.sweep("budgeted").suggestions()[-1].cell)
    assert queue.left.startswith(f"4 trials left ({last} suggested); the same command")
    assert len(lab.sweep("budgeted").suggestions()) == 3
    assert carried_out(lab, plan, slots=slots)[0] == []
    assert len(lab.sweep("budgeted").suggestions()) == 3
    more = planned(search=search, seeds=[0, 1], budget={"trials": 12})
    done, queue = carried_out(lab, more)
    assert len(done) == 7 and not queue.closed


@pytest.mark.parametrize(
    ("number", "on", "routed", "dense"),
    [(0, {}, 0, 5), (1, {}, 5, 0), (1, {"routes_until": 4}, 4, 1), (1, {"routes_from": 3}, 2, 3)],
)
def test_only_the_flops_that_a_begun_run_has_left_are_charged(
    number: int, on: dict[str, int], routed: int, dense: int, lab: Lab
) -> None:
    """Half of its ten steps are done, and the routes may be on in a part of them."""
    fixed = {"train": {"steps": 10}, **on}
    plan = planned(budget={"flops": 1e18}, fixed=fixed)
    task, price = plan.tasks[number], cost(plan.tasks[number].spec)
    folder = lab.run(task.run)
    folder.create(task.spec)
    with folder.log() as log:
        log(5, **{"train/loss": 1.0})
    budget, plain = Budget(lab, plan, untimed), cost(plan.tasks[0].spec)
    steps = routed * price.step.flops + dense * plain.step.flops
    assert budget.flops == task.spec.train.batch * steps
    budget.admit(task)
    assert budget.flops == price.train_flops


def end_early(lab: Lab, task: Task, how: str) -> None:
    """End a run after five of its ten steps."""
    folder = lab.run(task.run)
    folder.create(task.spec)
    with folder.log() as log:
        log(5, **{"train/loss": 1.0})
    if how == "by a rule":
        lab.sweep("budgeted").add_stopped(Stopped(task.run, 5, "others are better"))
    elif how == "by a mistake":
        folder.attempts.close(folder.attempts.open(), "mistake")
    else:
        folder.finish(RunState(how), **({"step": 5} if how == "diverged" else {}))


@pytest.mark.parametrize("how", ["by a rule", "by a mistake", "diverged", "failed"])
def test_a_run_that_ends_early_leaves_the_rest_to_others_until_it_goes_on(
    how: str, lab: Lab
) -> None:
    fixed = {"train": {"steps": 10}, "routes_until": 4}
    whole = planned(fixed=fixed, stop_early="asha")
    dense, first, second, third, *_ = (cost(task.spec).train_flops for task in whole.tasks)
    half = executed_flops(whole.tasks[2].spec, 5)
    flops = dense + first + half + third
    plan = planned(fixed=fixed, stop_early="asha", budget={"flops": flops})
    watch = Stopwatch(lab.sweep("budgeted").spent_path)
    queue = BudgetedQueue(ListQueue(plan.tasks[:5]), Budget(lab, plan, untimed), watch)
    assert [queue.next() for _ in range(4)] == [*plan.tasks[:3], None] and not queue.finished
    assert all(queue.budget.fits(t, 0.0) for t in plan.tasks[:3]), "what is under way counts once"
    end_early(lab, plan.tasks[2], how)
    queue.ended(plan.tasks[2])
    assert (queue.next(), queue.budget.flops) == (plan.tasks[3], flops)
    assert queue.next() is None and not queue.finished
    for task in (*plan.tasks[:2], plan.tasks[3]):
        lab.run_of(task.spec).finish(RunState.COMPLETED, step=10)
        queue.ended(task)
    assert queue.next() is None and queue.closed

    lab.run_of(plan.tasks[2].spec).reopen()
    later = Budget(lab, replace(plan, stop_early=None), untimed)
    assert later.flops == queue.budget.flops
    later.admit(plan.tasks[2])
    assert later.flops == dense + first + second + third


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({"flops": 1.0}, True),  # times those of the run
        ({"flops": 0.999}, False),
        ({"trials": 1}, True),
        ({"hours": 0.5 + 100 / 3600}, True),
        ({"hours": 0.5 + 99 / 3600}, False),
        ({}, True),
    ],
)
def test_what_a_budget_holds_exactly_fits(lab: Lab, limits: dict[str, float], fits: bool) -> None:
    task = planned().tasks[1]
    flops = cost(task.spec).train_flops
    if "flops" in limits:
        limits = {"flops": limits["flops"] * flops}
    budget = Budget(lab, planned(budget=limits), lambda task: LONG)
    assert budget.fits(task, 0.5) == fits
    budget.admit(task)
    assert (budget.flops, budget.count) == (flops, 1)
    another = budget.fits(planned().tasks[2], 0.0)
    assert another == ("flops" not in limits and "trials" not in limits)


def queued(lab: Lab, hours: float, seconds: float | None = None) -> BudgetedQueue:
    """The first two tasks of a plan with so many hours; each takes so many seconds."""
    plan = planned(budget={"hours": hours})
    watch = Stopwatch(lab.sweep("budgeted").spent_path)
    return BudgetedQueue(ListQueue(plan.tasks[:2]), Budget(lab, plan, lambda task: seconds), watch)


@pytest.mark.parametrize(
    ("given", "ended", "spent", "over", "full"),
    [
        (0, 0, 7200.0, False, False),
        (0, 0, 7200.5, True, True),
        (2, 1, 7200.5, True, True),  # the last run is under way
        (2, 2, 7200.5, True, False),  # nothing is left undone
    ],
)
def test_hours_are_over_once_more_than_all_are_spent(
    lab: Lab, given: int, ended: int, spent: float, over: bool, full: bool
) -> None:
    queue = queued(lab, 2.0)
    tasks = [queue.next() for _ in range(given)]
    for task in tasks[:ended]:
        assert task is not None
        queue.ended(task)
    assert (queue.finished, queue.over) == (given == 2, ended == 2)
    assert not queue.closed and not queue.stop
    queue.watch = SimpleNamespace(seconds=spent, note=lambda now=False: None)  # type: ignore[assignment]
    assert (queue.stop, queue.closed, queue.over) == (over, full, ended == 2)
    left = "1 run" if ended == 1 else f"{2 - ended} runs"
    assert queue.left == f"{left} left; the same command with a larger budget goes on"
    assert (queue.next() is None) == (over or given == 2)


def test_a_closed_queue_stays_closed_and_one_that_stops_records_its_last_second(lab: Lab) -> None:
    queue = queued(lab, 1.0, 3601.0)
    assert queue.next() is None and queue.closed and queue.closed and queue.finished
    queue.budget.seconds = lambda task: 0.0
    assert not queue.stop and queue.closed and queue.next() is None
    assert not queue.over and queue.left.startswith("2 runs left")
    queue = queued(lab, 1.0)
    queue.queue.stop = True  # type: ignore[misc]
    assert queue.stop and queue.next() is None and not queue.closed
    queue.watch._started -= 7.0  # of an entry each quarter of a minute
    queue.close()
    assert seconds_spent(queue.watch.path) == pytest.approx(7.0, abs=1.0)
