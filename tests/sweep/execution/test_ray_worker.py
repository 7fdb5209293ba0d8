"""A step of a worker ends at the steps at which early stopping judges its run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.sweep.plans import tiny
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.specs.sweep import StopEarlySpec
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.trial.attempt import NodeMismatch, WorkerInfo
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report


def worker(lab: Lab, *reports: Report) -> Any:
    """A worker of no cluster that has these reports still to give, all within a moment."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_worker import Worker

    made = Worker.__new__(Worker)
    made.early = EarlyStopping(StopEarlySpec(grace=10, reduction=2), lab, "s", {"a": (40, None)})
    made.rungs, made._reports = made.early.rungs("a"), iter(reports)
    made.worker = WorkerInfo(hang_timeout=7.0)
    return made


def report(phase: str, step: int) -> Report:
    return Report("a", phase, step, 40, 0.5)


def test_every_rung_is_reported_with_its_gap_however_fast_the_steps_are(lab: Lab) -> None:
    with lab.run("a").log() as log:
        for step in (5, 10, 15, 20):
            log(step, **{"train/loss": float(step)})
    fast = worker(lab, *(report("train", step) for step in range(5, 40, 5)))
    steps = [fast.step() for _ in range(4)]
    assert [(s.get("step"), s.get(RUNG), s.get(GAP)) for s in steps] == [
        (10, 10, 10.0),
        (20, 20, 17.5),
        (35, None, None),
        (None, None, None),
    ]
    assert [s["done"] for s in steps] == [False, False, False, True]


def test_a_step_that_is_measured_or_not_logged_is_not_judged(lab: Lab) -> None:
    result = worker(lab, report("evaluate", 10), report("completed", 40)).step()
    assert (result["phase"], result["done"]) == ("completed", True) and GAP not in result
    result = worker(lab, report("train", 10)).step()  # nothing is logged yet
    assert result["step"] == 10 and RUNG not in result and GAP not in result


def test_a_step_goes_on_for_a_second(lab: Lab, clock: Any) -> None:

    def slow(*seconds: float) -> Iterator[Report]:
        for step, length in enumerate(seconds, 1):
            clock.now += length
            yield report("train", step)

    made = worker(lab)
    made._reports = slow(0.5, 0.25, 0.25, 0.125, 0.125)
    steps = [made.step() for _ in range(3)]
    assert [step.get("step") for step in steps] == [4, 5, None]
    assert [step["done"] for step in steps] == [False, False, True]


@pytest.fixture
def started(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker on node `n1` of a cluster, and what `run_trial` is given; its error is settable."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_worker

    context = SimpleNamespace(get_node_id=lambda: "n1")
    made = SimpleNamespace(module=ray_worker, given=[], error=None, closed=0)

    def run_trial(*arguments: Any) -> Iterator[Report]:
        made.given.append(arguments)
        try:
            yield report("train", 1)
            if made.error is not None:
                raise made.error
        finally:
            made.closed += 1

    monkeypatch.setattr(ray_worker.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_worker, "alive_nodes", lambda: frozenset({"n1", "n2"}))
    monkeypatch.setattr(ray_worker, "run_trial", run_trial)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: setattr(made, "threads", count))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    made.task = Task(tiny())
    made.worker = ray_worker.Worker.__new__(ray_worker.Worker)
    config = {"task": ray_worker.SentTask(made.task)}
    early = EarlyStopping(
        StopEarlySpec(grace=10, reduction=2), lab, "s", {made.task.run: (20, None)}
    )
    worker = WorkerInfo(hang_timeout=7.0, runs_per_device=4)
    made.worker.setup(config, lab, "cpu", 3, worker, early)
    return made


def test_a_worker_attempts_its_task_as_itself_on_its_device(started: Any, lab: Lab) -> None:
    assert started.worker.rungs == (10,) and started.given == []
    assert next(started.worker._reports).phase == "train"
    ((where, task, device, info),) = started.given
    assert (where, task, device) == (lab, started.task, torch.device("cpu"))
    assert (info.node, info.alive) == ("n1", frozenset({"n1", "n2"}))
    assert (info.hang_timeout, started.threads) == (7.0, 3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_a_worker_that_is_reused_ends_its_task_and_takes_the_next(started: Any) -> None:
    first = started.worker._reports
    next(first)
    other = started.module.SentTask(Task(tiny(seed=1)), {"code": "1"})
    assert started.worker.reset_config({"task": other}) is True
    assert started.closed == 1 and started.worker.task == other.task
    assert started.worker.rungs == ()
    second = started.worker._reports
    next(second)
    assert [given[3].expected for given in started.given] == [{}, {"code": "1"}]
    started.worker.cleanup()
    assert started.closed == 2 and started.worker._reports is None
    assert list(first) == list(second) == []  # closed, although they are still held
    started.worker.cleanup()
    started.worker.early = None
    started.worker.reset_config({"task": started.module.SentTask(started.task)})
    assert started.worker.rungs == ()


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (UserError("write it otherwise"), {"phase": "mistake"}),
        (Unavailable("disk full"), {"phase": "unavailable"}),
        (NodeMismatch("other code"), {"phase": "refused", "node": "n1"}),  # for another node
    ],
)
def test_what_no_attempt_here_can_mend_is_the_last_report(
    started: Any, error: Exception, last: dict[str, str]
) -> None:
    started.error = error
    result = started.worker.step()
    where = {"run": started.task.run, "step": 0, "steps": 20, "note": str(error), "done": True}
    assert {name: result.get(name) for name in {**where, **last}} == {**where, **last}
    assert ("node" in result) == ("node" in last)


def test_the_watchdog_of_a_worker_counts_within_its_steps_alone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, watching = worker(lab), list[bool]()
    from tread_lab.sweep.execution import ray_worker

    @contextmanager
    def watched() -> Iterator[None]:
        watching.append(True)
        yield
        watching.pop()

    def reports() -> Iterator[Report]:
        assert watching == [True]
        yield report("completed", 40)

    monkeypatch.setattr(ray_worker, "watched", watched)
    made._reports = reports()
    result = made.step()
    assert watching == [] and {**result} == {
        "done": True, "run": "a", "phase": "completed", "step": 40, "steps": 40, "loss": 0.5,
        "overflows": 0, "note": "", "measured": 0.0, "limit": 70.0,
    }  # fmt: skip


def test_what_another_attempt_may_mend_ends_the_process(started: Any) -> None:
    started.error = RuntimeError("CUDA error")
    with pytest.raises(RuntimeError, match="CUDA error"):
        list(started.worker.reports())
