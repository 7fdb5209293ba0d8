"""Claims about families of runs: parents first, once, shared; what has no parent fails, named."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.engine.runs import last_checkpoint
from tests.pretender import ended_run
from tests.sweep.plans import carry_out, plan_of, tiny
from tread_lab.cost.training import cost
from tread_lab.engine.trainer import Trainer
from tread_lab.records import metric_names
from tread_lab.records.checkpoint_names import list_checkpoints
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, decode, encode, signature
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import load_plan, store_plan
from tread_lab.sweep.trial.task import (
    ListQueue,
    Task,
    as_queue,
    done_share,
    is_complete,
    kept_share,
    with_ancestors,
)
from tread_lab.sweep.trial.trial import run_trial

CPU = torch.device("cpu")


def child_of(parent: RunSpec, **changes: Any) -> RunSpec:
    return decode(RunSpec, {**encode(parent), "init_from": {"run": encode(parent)}, **changes})


def family_plan(spec: RunSpec) -> Plan:
    """A routed run, and two runs that go on from it; the routed run itself is no trial."""
    then = {"routes": [], "train": {"steps": 4, "lr": 1e-3, "warmup": 0}}
    longer = {**then, "train": {**then["train"], "steps": 6}}
    variants = {"finetune": {"short": {"then": then}, "long": {"then": longer}}}
    return plan_of(spec, "family", baseline=None, variants=variants)


def weights(folder: RunFolder, part: str) -> dict[str, Tensor]:
    return last_checkpoint(folder).part(part)


def test_the_parent_is_trained_once_for_all_its_children(lab: Lab) -> None:
    plan = family_plan(tiny(routes=["1->2"], steps=10))
    store_plan(lab.sweep("family"), plan)
    reports = carry_out(lab, *plan.open_tasks(lab))
    parent, *children = plan.tasks
    folders = [lab.run(task.run) for task in plan.tasks]
    assert [folder.state() for folder in folders] == ["completed"] * 3
    assert [len(folder.origin()) for folder in folders] == [1, 1, 1]
    ended = [r.run for r in reports if r.phase == "completed"]
    assert ended[0] == signature(parent.spec)
    metrics = (folders[1].result() or {})["metrics"]
    parts = [cost(spec).train_flops for spec in (parent.spec, children[0].spec)]
    assert metrics[metric_names.TRAIN_FLOPS] == parts[1] and metrics[
        metric_names.FAMILY_FLOPS
    ] == sum(parts)
    assert load_plan(lab.sweep("family")).open_tasks(lab) == []


def test_a_child_starts_from_its_parents_ema_or_raw_weights(lab: Lab) -> None:
    parent = tiny(routes=["1->2"])
    list(run_trial(lab, Task(parent), CPU))
    for part in ("ema", "model"):
        child = child_of(parent, init_from={"run": encode(parent), "weights": part})
        with Trainer(child, lab.run_of(child), CPU) as run:
            assert run.resume() == 0
            expected = weights(lab.run_of(parent), part)
            found = run.network.state_dict()
            assert all(torch.equal(found[name], expected[name]) for name in run.ema.weights)
            assert all(torch.equal(run.ema.weights[n], expected[n]) for n in run.ema.weights)


@pytest.mark.filterwarnings("ignore:.*damaged")
def test_a_child_that_has_started_needs_no_parent_with_whole_weights(lab: Lab) -> None:
    parent, child = tiny(steps=6), Task(child_of(tiny(steps=6), seed=3))
    list(run_trial(lab, Task(parent), CPU))
    reports = run_trial(lab, child, CPU)
    next(reports)
    reports.close()  # type: ignore[attr-defined]
    last, *_ = list_checkpoints(lab.run_of(parent).checkpoints)
    last.write_bytes(last.read_bytes()[:-50])
    assert [r.phase for r in run_trial(lab, child, CPU)][-1] == "completed"
    assert [a.ended for a in lab.run_of(parent).attempts.read()] == ["completed"]


@pytest.mark.filterwarnings("ignore:.*damaged")
def test_a_parent_whose_last_weights_are_damaged_is_trained_again(lab: Lab) -> None:
    parent = tiny(steps=6, execution={"checkpoint_every": 2})
    calm, child = Lab(lab.root / "calm"), Task(child_of(parent, seed=3))
    for place in (calm, lab):
        carry_out(place, Task(parent))
    last, *_ = list_checkpoints(lab.run_of(parent).checkpoints)
    last.write_bytes(last.read_bytes()[:-50])
    for place in (calm, lab):
        carry_out(place, child)
    assert lab.run_of(child.spec).state() == lab.run_of(parent).state() == "completed"
    for spec in (parent, child.spec):
        mine, theirs = (weights(place.run_of(spec), "model") for place in (lab, calm))
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_a_task_is_complete_with_every_evaluation_that_its_run_can_have(lab: Lab) -> None:
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


def test_a_run_without_usable_weights_needs_no_evaluation(lab: Lab) -> None:
    for seed, state in enumerate(("diverged", "failed")):
        task = Task(tiny(seed=seed), (HeldoutSpec(images=8),))
        ended_run(lab, task.spec, state, step=3)
        assert is_complete(lab, task)


def test_the_done_share_is_of_executed_steps_and_one_where_completed(lab: Lab) -> None:
    """Of those, a run that is interrupted keeps the steps up to its newest checkpoint."""
    task = Task(tiny(steps=20))
    folder = lab.run(task.run)
    assert done_share(lab, task) == kept_share(lab, task) == 0.0
    with folder.log() as log:
        log(5, **{"train/loss": 1.0})
    assert (done_share(lab, task), kept_share(lab, task)) == (0.25, 0.0)
    with folder.lock():
        assert kept_share(lab, task) == 0.25
    folder.checkpoints.mkdir()
    for step, kept in ((3, 0.15), (9, 0.25)):
        (folder.checkpoints / f"step-{step:08}-{step:016}.safetensors").touch()
        assert kept_share(lab, task) == kept
    folder.finish(RunState.DIVERGED, step=10)
    assert done_share(lab, task) == 0.5
    folder.finish(RunState.COMPLETED, step=10)
    assert done_share(lab, task) == 1.0
    single = Task(tiny(steps=1))
    with lab.run(single.run).log() as log:
        log(1, **{"train/loss": 1.0})
    assert done_share(lab, single) == 1.0
    empty = Task(tiny(steps=0, init_from={"run": encode(tiny())}))
    assert done_share(lab, empty) == 0.0


def test_the_family_of_a_task_comes_first_and_each_run_once() -> None:
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


def test_a_task_refuses_a_sampler_that_its_run_cannot_have() -> None:
    for sampler in ({"solver": "ddpm"}, {"guidance": {"weight": 2, "weak": {"step": 7}}}):
        spec = decode(SamplesSpec, {"count": 8, "sampler": sampler})
        with pytest.raises(UserError, match=r"sampler.solver|no checkpoint of step 7 is kept"):
            Task(tiny(steps=20), (spec,))


def test_tasks_come_in_order_and_each_is_over_once_it_has_ended() -> None:
    tasks = [Task(tiny(seed=seed)) for seed in (0, 1)]
    queue = as_queue(tasks)
    assert as_queue(queue) is queue and not queue.stop
    assert (queue.finished, queue.over, queue.left) == (False, False, "2 runs left")
    assert [queue.next(), queue.next(), queue.next()] == [*tasks, None]
    assert (queue.finished, queue.over, queue.left) == (True, False, "2 runs left")
    queue.ended(tasks[1])
    assert (queue.over, queue.left) == (False, "1 run left")
    queue.ended(tasks[0])
    queue.ended(tasks[0])
    assert (queue.over, queue.left) == (True, "0 runs left")


def test_a_task_waits_for_its_parent_and_for_what_it_comes_after() -> None:
    parent, other = Task(tiny()), Task(tiny(seed=1))
    child = Task(child_of(parent.spec, seed=2))
    grandchild, judged = Task(child_of(child.spec, seed=2)), Task(tiny(seed=3))
    assert ListQueue([child]).next() == child  # its parent is no task
    tasks = [grandchild, child, judged, parent, other]
    queue = ListQueue(tasks, after={judged.run: other.run})
    assert [queue.next(), queue.next(), queue.next()] == [parent, other, None]
    assert not queue.finished
    queue.ended(other)
    assert [queue.next(), queue.next()] == [judged, None]
    queue.ended(parent)
    assert [queue.next(), queue.next()] == [child, None] and not queue.finished
    queue.ended(child)
    assert queue.next() == grandchild and queue.finished


def test_a_task_that_is_open_is_not_added_again_and_one_that_ended_is() -> None:
    task = Task(tiny())
    queue = ListQueue([task, task])
    queue.add([task])
    assert queue.next() == task and queue.next() is None
    queue.add([task])  # it runs
    assert queue.next() is None
    queue.ended(task)
    queue.add([task])
    assert queue.next() == task


def test_finished_run_without_weights_is_refused_where_needed(lab: Lab) -> None:
    spec = tiny(steps=4, routes=["1->2"])
    plan, measured = family_plan(spec), HeldoutSpec(images=8, levels=2)
    list(run_trial(lab, Task(spec, (measured,)), CPU))
    folder = lab.run_of(spec)
    shutil.rmtree(folder.checkpoints)
    assert is_complete(lab, Task(spec, (measured,)))
    (child, *_) = (task for task in plan.tasks if task.run != folder.name)
    line = f"{folder.path} to train it again"
    for task in (Task(spec, (HeldoutSpec(images=16),)), child):
        with pytest.raises(UserError, match=f"^run {folder.name} has no usable .*; delete {line}$"):
            list(run_trial(lab, task, CPU))
    assert folder.state() is RunState.COMPLETED and is_complete(lab, Task(spec, (measured,)))
    shutil.rmtree(folder.path)
    assert [*run_trial(lab, child, CPU)][-1].phase == "completed"
