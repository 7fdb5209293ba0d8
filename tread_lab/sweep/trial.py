"""One trial: train what is not trained, measure what is not measured, record how it ended."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from tread_lab.engine.checkpoint import list_checkpoints
from tread_lab.engine.cost import cost
from tread_lab.engine.device import origin, peak_flops, peak_memory
from tread_lab.engine.evaluate import evaluate
from tread_lab.engine.train import Diverged, Progress, train
from tread_lab.records import names
from tread_lab.records.layout import Lab, RunFolder
from tread_lab.spec.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.spec.guidance import check_guidance
from tread_lab.spec.run import RunSpec

MEASURABLE = ("completed", "stopped")  # states of runs whose last weights mean something


@dataclass(frozen=True)
class Task:
    """A run to bring to its end and the evaluations it needs.

    Raises:
        UserError: the run would lack something that an evaluation needs.
    """

    spec: RunSpec
    evaluations: tuple[EvaluationSpec, ...] = ()

    def __post_init__(self) -> None:
        for evaluation in self.evaluations:
            if isinstance(evaluation, SamplesSpec):
                check_guidance(self.spec, evaluation.sampler.guidance)


@dataclass(frozen=True)
class Report:
    """Where a task stands: `phase` is train, evaluate, or a terminal state of the run.

    `overflows` counts the steps that fp16 has skipped.
    """

    run: str
    phase: str
    step: int
    steps: int
    loss: float
    overflows: int = 0


def is_complete(lab: Lab, task: Task) -> bool:
    """Whether nothing is left to do: the run has ended, and is measured if it can be."""
    folder = lab.run_of(task.spec)
    result = folder.result()
    if result is None or _mendable(folder):
        return False
    measurable = result["state"] in MEASURABLE
    return not measurable or all(folder.evaluation(spec).done for spec in task.evaluations)


def _mendable(folder: RunFolder) -> bool:
    """Whether files of a finished run are damaged that its last checkpoint can make again."""
    return bool(folder.damaged() and list_checkpoints(folder.checkpoints))


def run_trial(lab: Lab, task: Task, device: torch.device) -> Iterator[Report]:
    """Bring a task to its end, reporting after every step and evaluation.

    A finished run is not trained again, a partial one continues; closing the iterator stops it with
    a checkpoint. A loss that is not finite ends the run as `diverged`; any other exception passes.
    A run that starts from another one trains it first, unless that has a result already.

    Raises:
        Busy: another process works on this run.
    """
    folder, steps = lab.run_of(task.spec), task.spec.train.steps
    with folder.claim():
        folder.create(task.spec)
        if _mendable(folder):
            folder.reopen()
        report = Report(folder.name, "train", 0, steps, float("nan"))
        if folder.result() is None:
            yield from _parent_first(lab, task, device, report)
        if folder.result() is None:
            for report in _trained(folder, task.spec, device):
                yield report
        state = (folder.result() or {})["state"]
        if state in MEASURABLE:
            for spec in task.evaluations:
                evaluate(folder, spec, device, cache=lab.root / "cache")
                yield replace(report, phase="evaluate", step=steps)
        yield replace(report, phase=state, step=steps)


def _parent_first(lab: Lab, task: Task, device: torch.device, report: Report) -> Iterator[Report]:
    """Train the run that the task starts from; if that went wrong, the task has failed."""
    if task.spec.init_from is None:
        return
    parent = lab.run_of(task.spec.init_from.run)
    if parent.result() is None:
        for _ in run_trial(lab, Task(task.spec.init_from.run), device):
            yield report
    state = (parent.result() or {})["state"]
    if state not in MEASURABLE:
        reason = f"run {parent.name}, which it starts from, has {state}"
        lab.run_of(task.spec).finish("failed", kind="parent", reason=reason)


def _trained(folder: RunFolder, spec: RunSpec, device: torch.device) -> Iterator[Report]:
    """Train to the end and write the result."""
    folder.write_origin({**origin(device), "started": time.time()})
    clock, step, first, overflows = time.perf_counter(), 0, None, 0
    try:
        for progress in train(spec, folder, device):
            step, overflows = progress.step, progress.overflows
            first = step if first is None else first
            yield _report(folder, progress)
    except Diverged as diverged:
        folder.finish("diverged", step=step, reason=str(diverged))
        return
    seconds = time.perf_counter() - clock
    done = step - (first or step) + 1 if first else 0
    metrics = _costs(spec, device, seconds / max(done, 1))
    if spec.precision == "fp16":
        metrics[names.OVERFLOWS] = overflows
    folder.finish("completed", step=step, metrics=metrics)


def _report(folder: RunFolder, progress: Progress) -> Report:
    return Report(folder.name, "train", **vars(progress))


def _costs(spec: RunSpec, device: torch.device, step_seconds: float) -> dict[str, float]:
    """What the run cost, under the names of the record."""
    flops, peak = cost(spec).train_flops, peak_flops(device)
    before = sum(cost(parent).train_flops for parent in spec.ancestors)
    values: dict[str, float] = {
        names.TRAIN_FLOPS: flops,
        names.FAMILY_FLOPS: before + flops,
        names.TRAIN_SECONDS: step_seconds * spec.train.steps,
        names.STEP_SECONDS: step_seconds,
        names.IMAGES_PER_S: spec.train.batch / step_seconds,
        names.PEAK_MEMORY: peak_memory(device),
    }
    if peak is not None:
        values[names.MFU] = flops / spec.train.steps / step_seconds / peak
    return values


def record_failure(folder: RunFolder, error: BaseException, kind: str) -> None:
    """End a run as failed, with its kind and traceback."""
    trace = "".join(traceback.format_exception(error))
    folder.finish("failed", kind=kind, reason=f"{type(error).__name__}: {error}", traceback=trace)
