"""What is reported and recorded of a task, however its run ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.runs import batches
from tests.pretender import ended_run
from tests.sweep.plans import carry_out, tiny
from tread_lab.cost.training import cost
from tread_lab.engine.checkpoint import DamagedCheckpoint
from tread_lab.engine.device import memory, name
from tread_lab.engine.train import Diverged, Progress
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs import RunSpec, UserError, encode
from tread_lab.specs.errors import Unavailable
from tread_lab.specs.evaluation import HeldoutSpec
from tread_lab.sweep.trial import attempt, trial
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import run_trial

CPU = torch.device("cpu")


def step(n: int, steps: int = 20, **more: Any) -> Progress:
    return Progress(n, steps, 0.5 / n, **{"seconds": 0.1 * n, **more})


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Training is a step to the end, or `steps`, and raises `end`; `given` is what it is given."""
    made = SimpleNamespace(steps=[step(20)], end=None, given=[], closed=0)

    def train(*what: Any) -> Iterator[Progress]:
        made.given.append(what)
        try:
            yield from made.steps
            if made.end is not None:
                raise made.end
        finally:
            made.closed += 1

    monkeypatch.setattr(trial, "train", train)
    return made


def test_every_step_is_reported_and_the_end_is_a_result(lab: Lab, training: Any) -> None:
    training.steps = [step(10, seconds=1.0), step(20, seconds=4.0, overflows=3)]
    task = Task(tiny(steps=20))
    reports = list(run_trial(lab, task, CPU))
    assert [(r.phase, r.step, r.steps, r.overflows, r.loss) for r in reports] == [
        ("train", 10, 20, 0, 0.05),
        ("train", 20, 20, 3, 0.025),
        ("completed", 20, 20, 3, 0.025),
    ]
    assert [report.share for report in reports] == [0.5, 1.0, 1.0]
    result = lab.run(task.run).result() or {}
    assert (result["state"], result["step"]) == ("completed", 20)
    metrics = result["metrics"]
    assert metrics.pop("cost/peak_memory_bytes", 1) > 0
    flops = cost(task.spec).train_flops
    assert metrics == {
        "cost/train_flops": flops,
        "cost/family_flops": flops,
        "cost/train_seconds": 4.0,
        "throughput/step_seconds": 0.2,
        "throughput/images_per_s": 8 / 0.2,
    }


def test_costs_of_a_gpu_hold_its_mfu_and_those_of_a_child_its_parents(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "peak_flops", lambda device: 1e9)
    child = tiny(steps=20, init_from={"run": encode(tiny(steps=5))})
    costs = trial._costs(lab.run("a"), child, CPU, 1, 0.5, None)
    flops, parent = cost(child).train_flops, cost(tiny(steps=5)).train_flops
    assert costs["cost/family_flops"] == flops + parent > flops == costs["cost/train_flops"]
    assert costs["cost/mfu"] == pytest.approx(flops / 20 / 0.5 / 1e9)
    assert costs["cost/train_seconds"] == 10.0 and "cost/peak_memory_bytes" not in costs
    with lab.run("a").log() as log:
        for n in (5, 10, 15):
            log(n, **{"train/images_per_s": 4.0 * n})
    costs = trial._costs(lab.run("a"), child, CPU, 2, 0.5, 7)
    assert costs["throughput/step_seconds"] == 8 / 50.0  # the median of 40 and 60
    assert costs["cost/mfu"] == pytest.approx(flops / 20 / 0.16 / 2e9)  # of two devices
    assert costs["throughput/images_per_s"] == 50.0 and costs["cost/peak_memory_bytes"] == 7
    costs = trial._costs(lab.run("b"), tiny(steps=1), CPU, 1, 0.5, None)
    assert (costs["cost/train_seconds"], costs["throughput/step_seconds"]) == (0.5, 0.5)
    evaluated = tiny(steps=0, init_from={"run": encode(tiny(steps=5))})
    costs = trial._costs(lab.run("b"), evaluated, CPU, 1, 0.0, None)
    assert costs == {"cost/train_flops": 0, "cost/family_flops": parent}


def test_times_are_those_of_the_devices_that_ended_a_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "peak_flops", lambda device: 1e9)
    folder, spec = lab.run("a"), tiny(steps=20)

    def went_on(devices: int, speed: float, *steps: int) -> dict[str, float]:
        time.sleep(0.002)  # logs have milliseconds
        folder.write_origin({"model": "g", "devices": devices, "started": time.time()})
        with folder.log() as log:
            for step in steps:
                log(step, **{"train/images_per_s": speed})
        return trial._costs(folder, spec, CPU, devices, 0.3, None)

    assert went_on(4, 80.0, 2, 4)["cost/train_seconds"] == 20 * 0.3 == 6.0
    assert went_on(4, 80.0, 6, 8, 10, 12)["throughput/step_seconds"] == 0.1
    few = went_on(1, 20.0, 14)
    assert few == {name: cost(spec).train_flops for name in few}, "which tell no time"
    costs = went_on(1, 20.0, 16, 18)
    assert costs["throughput/step_seconds"] == 0.4 and costs["cost/train_seconds"] == 20 * 0.4
    assert costs["cost/mfu"] == pytest.approx(cost(spec).train_flops / 20 / 0.4 / 1e9)


def test_skipped_steps_are_a_metric_of_fp16_alone(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    training.steps = [step(20, overflows=3)]
    monkeypatch.setattr(trial, "origin", lambda spec, device: {})
    for precision, overflows in (("fp16", 3), ("fp32", None)):
        spec = tiny(precision=precision)
        list(run_trial(lab, Task(spec), CPU))
        metrics = (lab.run_of(spec).result() or {})["metrics"]
        assert metrics.get("train/overflows") == overflows


def evaluating(lab: Lab, monkeypatch: pytest.MonkeyPatch, *errors: Exception | None) -> list[str]:
    """Evaluate a trained run three times; each evaluation meets an error."""
    left, done = list(errors), list[str]()

    def evaluate(folder: Any, spec: Any, device: Any, cache: Any, ranks: Any) -> None:
        assert cache == lab.root / "cache"
        done.append(f"{spec.images}")
        if (error := left.pop(0)) is not None:
            raise error

    monkeypatch.setattr(trial, "measuring", batches(evaluate))
    specs = tuple(HeldoutSpec(images=images) for images in (8, 16, 32))
    reports = run_trial(lab, Task(tiny(), specs), CPU)
    try:
        seen = list(reports)
    except UserError as error:
        return [*done, str(error)]
    return [*done, *(f"{report.phase} {report.step}" for report in seen if report.step == 20)]


@pytest.mark.parametrize(
    ("errors", "seen"),
    [
        ([UserError("first"), None, UserError("second")], ["8", "16", "32", "first"]),
        ([None, Unavailable("full")], ["8", "16", "full"]),  # it ends the evaluations at once
        ([None] * 3, ["8", "16", "32", "train 20", *["evaluate 20"] * 3, "completed 20"]),
    ],
)
def test_a_mistake_of_one_evaluation_is_raised_after_the_others(
    errors: list[Exception | None],
    seen: list[str],
    lab: Lab,
    training: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert evaluating(lab, monkeypatch, *errors) == seen


def test_what_is_on_record_is_not_asked_for_beside_an_open_evaluation(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, known = ended_run(lab, tiny(), step=20), HeldoutSpec(images=8)
    run.evaluation(known).write(known, {}, problem="no finite number")
    assert evaluating(lab, monkeypatch, *[None] * 2)[:2] == ["16", "32"]


@pytest.mark.parametrize("made", [[], [7]])
def test_a_run_diverges_at_the_last_step_that_it_made_and_is_not_tried_again(
    made: list[int], lab: Lab, training: Any
) -> None:
    training.steps, training.end = [*map(step, made)], Diverged("the loss is nan")
    task = Task(tiny(), (HeldoutSpec(images=8),))
    for _ in range(2):
        last = [*run_trial(lab, task, CPU)][-1]
        assert (last.phase, last.note) == ("diverged", "the loss is nan")
    result = lab.run(task.run).result() or {}
    assert (result["state"], result["kind"], result["step"]) == ("diverged", "diverged", sum(made))
    (attempt,) = lab.run(task.run).attempts.read()
    assert (attempt.ended, attempt.phase) == ("diverged", "evaluate")


def test_run_worse_than_predicting_zero_diverges(lab: Lab) -> None:
    """A finite explosion is no baseline: no gap to it is a result."""
    task = Task(tiny(steps=60, train={"lr": 0.4, "warmup": 0}), (HeldoutSpec(images=8, levels=2),))
    (report,) = carry_out(lab, task)[-1:]
    assert report.phase == "diverged" and "predicting zero" in report.note
    assert lab.run(task.run).state() is RunState.DIVERGED
    carry_out(lab, task)
    assert len(lab.run(task.run).attempts.read()) == 1, "and is not tried again"


def test_a_run_that_used_up_its_tries_fails_with_their_number(lab: Lab) -> None:
    task = Task(tiny())
    attempts = lab.run(task.run).attempts
    for ended in ("exception", "interrupted", "exception"):
        attempts.close(attempts.open(pid=1), ended, reason=f"why {ended}", traceback="where")
    (last,) = run_trial(lab, task, CPU, WorkerInfo())
    assert (last.phase, last.step, last.note) == ("failed", 20, "why exception")
    facts = {"state": RunState.FAILED, "kind": "exception", "reason": "why exception"}
    result = lab.run(task.run).result() or {}
    assert result.items() >= {**facts, "traceback": "where", "attempts": 3}.items()


def test_a_damaged_last_checkpoint_is_trained_again_and_then_evaluated(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, damaged, evaluated = list[Any](), [True], list[int]()

    def evaluate(folder: Any, spec: Any, device: Any, cache: Any, ranks: Any) -> None:
        if damaged and damaged.pop():
            raise DamagedCheckpoint("cut")
        evaluated.append(spec.images)

    monkeypatch.setattr(trial, "measuring", batches(evaluate))
    monkeypatch.setattr(trial, "release", released.append)
    task = Task(tiny(), (HeldoutSpec(images=8), HeldoutSpec(images=16)))
    phases = [report.phase for report in run_trial(lab, task, CPU)]
    assert phases == ["train", "evaluate", "train", "evaluate", "evaluate", "completed"]
    assert evaluated == [8, 16] and released == [CPU] * 4
    (attempt,) = lab.run(task.run).attempts.read()
    assert attempt.ended == "completed" and len(lab.run(task.run).origin()) == 2


def test_a_run_that_does_not_fit_its_device_is_not_begun(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:

    def check_memory(spec: RunSpec, device_type: str, label: str, *_: Any) -> None:
        raise UserError(f"seed {spec.seed} on {label} needs more")

    monkeypatch.setattr(trial, "check_memory", check_memory)
    task = Task(tiny(seed=4))
    with pytest.raises(UserError, match=r"^seed 4 on cpu \(.+\) needs more$"):
        list(run_trial(lab, task, CPU))
    assert lab.run(task.run).origin() == [] and lab.run(task.run).result() is None


@dataclass(frozen=True)
class Several:
    """Processes that train a run together, none of which is started."""

    count: int

    @contextmanager
    def open(self, device: torch.device) -> Iterator[Any]:
        yield self


@pytest.mark.parametrize(("runs", "count"), [(1, 1), (2, 1), (1, 3)])
def test_run_gets_its_devices(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch, runs: int, count: int
) -> None:
    training.steps, given = [step(10), step(20)], list[Any]()
    monkeypatch.setattr(trial, "check_memory", lambda *what: given.append(what))
    monkeypatch.setattr(trial, "peak_flops", lambda device: 1e9)
    task = Task(tiny(seed=2))
    worker = WorkerInfo(runs_per_device=runs, processes=Several(count))
    reports = run_trial(lab, task, CPU, worker)
    assert next(reports).step == 10 and training.closed == 0
    assert given == [(task.spec, "cpu", f"cpu ({name(CPU)})", memory(CPU), count)]
    ((spec, folder, *rest),) = training.given
    assert (spec, folder.name, *rest) == (task.spec, task.run, CPU, Several(count))
    reports.close()  # type: ignore[attr-defined]
    assert training.closed == 1
    (attempt,) = lab.run(task.run).attempts.read()
    assert (attempt.ended, attempt.phase, attempt.reason) == ("interrupted", "train", "")
    assert (attempt.runs_per_device, attempt.devices) == (runs, count)
    list(run_trial(lab, task, CPU, worker))
    result = lab.run(task.run).result() or {}
    assert result.get("devices") == (count if count > 1 else None)
    assert [origin["devices"] for origin in lab.run(task.run).origin()] == [count, count]
    flops = cost(task.spec).train_flops / 20 / 0.1
    assert result["metrics"]["cost/mfu"] == pytest.approx(flops / (count * 1e9))


def test_a_run_keeps_the_checkpoints_that_its_evaluations_need(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "measuring", batches(lambda *a, **k: None))
    task = Task(tiny(), (HeldoutSpec(images=8, step=5), HeldoutSpec(images=8)))
    list(run_trial(lab, task, CPU))
    assert lab.run(task.run).kept_steps() == {5} and lab.run(task.run).spec() == task.spec


def test_a_run_fails_of_a_parent_without_weights_and_is_not_attempted(
    lab: Lab, training: Any
) -> None:
    child = Task(tiny(seed=1, init_from={"run": encode(tiny())}))
    parent = ended_run(lab, tiny(), "diverged", step=3)
    *_, last = run_trial(lab, child, CPU)
    assert (last.phase, last.step, last.steps) == ("failed", 20, 20)
    assert last.note == f"run {parent.name}, which it starts from, has diverged"
    assert (lab.run(child.run).result() or {})["kind"] == "parent"
    assert lab.run(child.run).attempts.read() == training.given == []


def test_a_parent_may_have_other_data_than_its_child_on_a_node_that_is_compared(
    lab: Lab, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(spec: RunSpec, device: str) -> dict[str, str]:
        return {"code": "c", f"data {spec.seed}": "d"}

    monkeypatch.setattr(attempt, "fingerprint", fingerprint)
    child = tiny(seed=1, init_from={"run": encode(tiny(seed=0))})
    worker = WorkerInfo(expected=fingerprint(child, "cpu"))
    assert [*run_trial(lab, Task(child), CPU, worker)][-1].phase == "completed"
    assert [spec.seed for spec, *_ in training.given] == [0, 1]
