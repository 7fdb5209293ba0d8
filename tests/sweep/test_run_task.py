"""What is reported and recorded of a task, however its attempts end."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.faults.drivers import Zygote
from tests.pretender import ended_run
from tests.sweep.plans import carry_out, tiny
from tests.sweep.test_task import child_of
from tread_lab.config import UserError
from tread_lab.config.errors import Exploded, Unavailable
from tread_lab.config.evaluation import HeldoutSpec
from tread_lab.cost.training import cost
from tread_lab.evaluate.measuring import measuring
from tread_lab.records.durable import DiskFull
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder, list_checkpoints
from tread_lab.records.run_state import RunState
from tread_lab.sweep import run_task
from tread_lab.sweep.run_task import WorkerInfo
from tread_lab.sweep.task import Task
from tread_lab.train.provenance import fingerprint, of_nodes
from tread_lab.train.trainer import Diverged, Progress

CPU = torch.device("cpu")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Training is two made-up steps, which meet these errors, one an attempt; then none."""

    def meet(*errors: BaseException) -> None:
        left = list(errors)

        def train(*_: Any, **__: Any) -> Iterator[Progress]:
            yield Progress(3, 6, 0.5, seconds=0.3)
            if left:
                raise left.pop(0)
            yield Progress(6, 6, 0.25, seconds=0.6)

        monkeypatch.setattr(run_task, "train", train)

    return meet


def endings(folder: RunFolder) -> list[str]:
    return [attempt.ended for attempt in folder.attempts()]


@pytest.mark.parametrize(
    ("errors", "ended", "state"),
    [
        ([], ["completed"], "completed"),
        ([RuntimeError("once")], ["exception", "completed"], "completed"),
        ([RuntimeError("a"), ValueError("b")], ["exception", "exception"], "failed"),
        ([Diverged("the loss is nan")], ["diverged"], "diverged"),
    ],
)
def test_record_decides_whether_a_try_follows(
    lab: Lab,
    failing: Callable[..., None],
    errors: list[Exception],
    ended: list[str],
    state: str,
) -> None:
    failing(*errors)
    task = Task(tiny(steps=6))
    last, folder = carry_out(lab, task)[-1], lab.run(task.run)
    assert (last.phase, folder.state(), endings(folder)) == (state, state, ended)
    first, result = folder.attempts()[0], folder.result() or {}
    assert first.fingerprint == fingerprint(task.spec, "cpu") and first.origin["device"]
    assert state != "failed" or (result["kind"], last.note) == ("exception", "ValueError: b")
    assert state != "failed" or "ValueError: b" in result["traceback"]
    assert state != "completed" or result["metrics"]["cost/train_seconds"] == pytest.approx(0.6)
    carry_out(lab, task)
    assert endings(folder) == ended, "and no session tries it again"


@pytest.mark.parametrize(
    ("error", "raised", "said", "ended"),
    [
        (UserError("no data"), UserError, "^no data$", "mistake"),
        (OSError(errno.ENOSPC, "No space left"), DiskFull, "No space left. Free space", "disk"),
        (DiskFull("no room for a file"), DiskFull, "^no room for a file$", "disk"),
        (torch.OutOfMemoryError("CUDA out of memory"), UserError, "got 8: .*Try 4", "oom"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$", "interrupted"),
    ],
)
def test_other_ends_count_against_no_run(
    lab: Lab,
    failing: Callable[..., None],
    error: BaseException,
    raised: type[BaseException],
    said: str,
    ended: str,
) -> None:
    failing(error)
    task = Task(tiny(steps=6))
    with pytest.raises(raised, match=said):
        carry_out(lab, task)
    assert lab.run(task.run).result() is None and endings(lab.run(task.run)) == [ended]
    assert carry_out(lab, task)[-1].phase == "completed"


@pytest.mark.parametrize(("driver", "state"), [("me", "failed"), ("another", "completed")])
def test_deaths_count_within_a_session(
    lab: Lab, failing: Callable[..., None], driver: str, state: str
) -> None:
    failing()
    task = Task(tiny(steps=6))
    folder = lab.run(task.run)
    for _ in range(2):
        folder.close_attempt(folder.open_attempt(driver="me"), "died")
    folder.open_attempt(driver="me", host="h", pid=7)
    reports = list(run_task.run_task(lab, task, CPU, WorkerInfo(driver=driver)))
    assert folder.attempts()[2].reason == "process 7 on h ended without a word"
    assert reports[-1].phase == folder.state() == state
    assert (reports[0].phase == "queued") == (driver == "me")


@pytest.mark.fault(
    19,
    survived="its process ends with all stacks in a file; the next attempt resumes",
)
def test_hung_process_ends_with_its_stacks(lab: Lab, zygote: Zygote) -> None:
    code = f"""
import time
from pathlib import Path
from tests.sweep.plans import tiny
from tread_lab.records.lab import Lab
from tread_lab.sweep import run_task
from tread_lab.sweep.task import Task
from torch import device

def stuck_here(*_, **__):
    time.sleep(60)
    yield
run_task.train = stuck_here
lab, worker = Lab(Path({str(lab.root)!r})), run_task.WorkerInfo(hang_timeout=1)
list(run_task.run_task(lab, Task(tiny(steps=6)), device("cpu"), worker))
"""
    done = zygote.python(code)
    folder = lab.run_of(tiny(steps=6))
    assert done.returncode == 1 and "stuck_here" in folder.stacks_path.read_text()
    assert carry_out(lab, Task(tiny(steps=6)))[-1].phase == "completed"
    first, second = folder.attempts()
    assert (first.ended, second.ended) == ("died", "completed")
    assert "made no step in time" in first.reason and not folder.stacks_path.exists()


def test_closing_saves_and_locks_are_awaited(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_task, "_POLL_SECONDS", 0.01)
    task = Task(tiny(steps=6))
    folder, reports = lab.run(task.run), run_task.run_task(lab, task, CPU)
    with folder.lock():
        assert "in use by another process" in next(reports).note
    while (report := next(reports)).step < 2:
        assert report.phase == "train"
    reports.close()
    assert endings(folder) == ["interrupted"] and list_checkpoints(folder.checkpoints)
    steps = [report.step for report in run_task.run_task(lab, task, CPU)]
    assert steps[0] > 2 and folder.state() == "completed"


def test_run_worse_than_zero_diverges(lab: Lab) -> None:
    """A finite explosion is no baseline: no gap to it is a result."""
    heldout = HeldoutSpec(images=8, levels=2)
    task = Task(tiny(steps=60, train={"lr": 0.4, "warmup": 0}), (heldout,))
    report = carry_out(lab, task)[-1]
    assert report.phase == "diverged" and "predicting zero" in report.note
    assert lab.run(task.run).state() is RunState.DIVERGED
    later = replace(task, spec=replace(task.spec, seed=1), evaluations=())
    assert carry_out(lab, later)[-1].phase == "completed"
    with pytest.raises(Exploded):
        list(measuring(lab.run(later.run), heldout, CPU))
    assert lab.run(later.run).state() is RunState.DIVERGED


def test_child_needs_a_parent_with_weights(lab: Lab) -> None:
    parent = tiny(steps=6, execution={"checkpoint_every": 2})
    child = Task(child_of(parent, seed=3))
    with pytest.raises(UserError, match=r"^init_from: run \w+ must be completed, got pending"):
        carry_out(lab, child)
    carry_out(lab, Task(parent))
    assert carry_out(lab, child)[-1].phase == "completed"
    ended_run(lab, parent, "diverged", step=7)  # divergence is never in a checkpoint
    other = Task(child_of(parent, seed=4))
    assert carry_out(lab, other)[-1].phase == "failed"
    assert (lab.run(other.run).result() or {})["kind"] == "parent"
    assert lab.run_of(parent).state() == "diverged"
    assert lab.run(other.run).attempts() == []


def test_different_worker_is_refused_before_training(lab: Lab) -> None:
    spec = tiny(steps=6)
    expected = of_nodes(fingerprint(spec, "cpu"))
    assert {"code", "package torch"} <= expected.keys()
    for what in ("code", "package torch", f"data {spec.data.source}"):
        worker = WorkerInfo(expected={**expected, what: "other"})
        with pytest.raises(Unavailable, match=rf"^node \S+: {what} must be other as on"):
            list(run_task.run_task(lab, Task(spec), CPU, worker))
    assert not lab.run_of(spec).path.exists()
    (*_, last) = run_task.run_task(lab, Task(spec), CPU, WorkerInfo(expected=expected))
    assert last.phase == "completed"


def test_costs_are_of_all_steps(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_task, "peak_flops", lambda device: 1e9)
    child, folder = child_of(tiny(steps=5), train={"steps": 20, "batch": 8}), lab.run("a")
    flops, parent = cost(child).train_flops, cost(tiny(steps=5)).train_flops

    def costs(devices: int, *steps: int) -> dict[str, float]:
        folder.open_attempt(origin={"model": "g"}, devices=devices)
        with folder.log() as log:
            for step in steps:
                log(step, **{"train/images_per_s": 80.0})
        return run_task.run_costs(folder, child, CPU, devices, 0.3, 7)

    first = costs(4, 2)
    assert first["cost/family_flops"] == flops + parent > flops == first["cost/train_flops"]
    assert first["cost/train_seconds"] == 20 * 0.3 and first["cost/peak_memory_bytes"] == 7
    last = costs(4, 6, 8)
    assert last["throughput/step_seconds"] == 0.1
    assert last["cost/mfu"] == pytest.approx(flops / 20 / 0.1 / 4e9)
    assert "cost/train_seconds" not in costs(2, 10), "times of several kinds of devices"
    idle = child_of(tiny(steps=5), train={"steps": 0})
    found = run_task.run_costs(lab.run("b"), idle, CPU, 1, 0, 7)
    assert found == {"cost/train_flops": 0, "cost/family_flops": parent}
