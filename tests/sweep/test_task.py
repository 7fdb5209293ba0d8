"""How much of a task is done, and which tasks it needs before."""

from __future__ import annotations

from typing import Any

from tests.sweep.plans import plan_of, tiny
from tread_lab.config import RunSpec, decode, encode
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.sweep.plan import Plan
from tread_lab.sweep.task import (
    ListQueue,
    Task,
    is_complete,
    with_ancestors,
)


def child_of(parent: RunSpec, **changes: Any) -> RunSpec:
    return decode(RunSpec, {**encode(parent), "init_from": {"run": encode(parent)}, **changes})


def family_plan(spec: RunSpec) -> Plan:
    """A routed run, and two runs that go on from it; the routed run itself is no trial."""
    then = {"routes": [], "train": {"steps": 4, "lr": 1e-3, "warmup": 0}}
    longer = {**then, "train": {**then["train"], "steps": 6}}
    variants = {"finetune": {"short": {"then": then}, "long": {"then": longer}}}
    return plan_of(spec, "family", baseline=None, variants=variants)


def test_task_is_complete_with_every_possible_evaluation(lab: Lab) -> None:
    early, late = HeldoutSpec(images=8, step=5), HeldoutSpec(images=8)
    task = Task(tiny(steps=20), (early, late))
    folder = lab.run(task.run)
    assert task.kept_steps == (5,) and task.measurable(folder) == (early, late)
    several = tuple(HeldoutSpec(images=8, step=n) for n in (9, 3, 9, 5))
    assert Task(tiny(steps=20), several).kept_steps == (3, 5, 9)
    assert not is_complete(lab, task)
    folder.create(task.spec)
    folder.finish(RunState.COMPLETED, step=20)
    for spec in (early, late):
        assert not is_complete(lab, task)
        folder.evaluation(spec).write(spec, {"heldout/loss": 1.0})
    assert is_complete(lab, task)
    folder.reopen()
    folder.finish(RunState.STOPPED, step=4)
    assert task.measurable(folder) == (late,)
    folder.finish(RunState.STOPPED, step=5)
    assert task.measurable(folder) == (early, late)


def test_parents_come_first_and_once() -> None:
    eldest = tiny(steps=5)
    middle = child_of(eldest, train={"steps": 6})
    youngest = child_of(middle, train={"steps": 7})
    measured = Task(eldest, (HeldoutSpec(images=8, step="50%"),))  # type: ignore[arg-type]
    assert measured.evaluations == (HeldoutSpec(images=8, step=2),)
    ordered = with_ancestors([Task(youngest), measured, Task(middle)])
    assert [task.spec for task in ordered] == [eldest, middle, youngest]
    assert [len(task.evaluations) for task in ordered] == [1, 0, 0]
    alone = with_ancestors([Task(youngest, (HeldoutSpec(images=8),))])  # parents are only trained
    assert [len(task.evaluations) for task in alone] == [0, 0, 1]


def test_task_waits_for_its_parent() -> None:
    parent = Task(tiny())
    child = Task(child_of(parent.spec, seed=2))
    grandchild = Task(child_of(child.spec, seed=2))
    assert ListQueue([child]).next() == child  # its parent is no task
    queue = ListQueue([grandchild, child, parent])
    assert [queue.next(), queue.next()] == [parent, None]
    queue.ended(parent)
    assert [queue.next(), queue.next()] == [child, None]
    queue.ended(child)
    assert queue.next() == grandchild and not queue.done
    queue.ended(grandchild)
    assert queue.done
