"""One trial: train what is not trained, measure what is not measured, record how it ended."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from tread_lab.engine.assemble import has_lost_its_end
from tread_lab.engine.checkpoint import DamagedCheckpoint, list_checkpoints, load_latest
from tread_lab.engine.cost.memory import check_room
from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import PeakMemory, origin, peak_flops, release
from tread_lab.engine.evaluate import evaluate
from tread_lab.engine.train import Diverged, Progress, train
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.locks import Busy
from tread_lab.records.log import Entry
from tread_lab.records.status import RunState
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.guidance import check_guidance
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature
from tread_lab.sweep.trial.attempt import Course, Place, attempt, settled
from tread_lab.sweep.trial.retry import Verdict, verdict
from tread_lab.sweep.trial.watchdog import every_forward_pass

_AGAIN = 1.0  # seconds until a run is looked at again that another process works on
UNDER_WAY = ("train", "evaluate")  # phases that are no end
DEFERRED = "deferred"  # phase of a task that waits for a whole device


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

    @cached_property
    def run(self) -> str:
        """The name of the run: the signature of its spec."""
        return signature(self.spec)


@dataclass(frozen=True)
class Report:
    """Where a task stands.

    Attributes:
        phase: train, evaluate, a terminal state of the run, or why the task was put aside.
        overflows: steps that fp16 has skipped.
        note: what there is to say about it.
    """

    run: str
    phase: str
    step: int
    steps: int
    loss: float
    overflows: int = 0
    note: str = ""


def is_complete(lab: Lab, task: Task) -> bool:
    """Whether nothing is left to do: the run has ended, and is measured if it can be."""
    folder = lab.run(task.run)
    result = folder.result()
    if result is None or _mendable(folder):
        return False
    return not result["state"].measurable or all(
        folder.evaluation(spec).done for spec in task.evaluations
    )


def _mendable(folder: RunFolder) -> bool:
    """Whether files of a finished run are damaged that its last checkpoint can make again."""
    return bool(folder.damaged() and list_checkpoints(folder.checkpoints))


def run_trial(
    lab: Lab, task: Task, device: torch.device, place: Place | None = None
) -> Iterator[Report]:
    """Make one attempt to bring a task to its end, reporting after every step and evaluation.

    A finished run is not trained again, a partial one continues; closing the iterator stops it with
    a checkpoint. A loss that is not finite ends the run as `diverged`. Any other exception closes
    the attempt and passes: the caller asks again, until the policy of `sweep.retry` ends the run as
    `failed`. A run that starts from another one trains it first, unless that has a result already.
    While another process works on the run, this one waits and then takes what there is.

    Raises:
        DiskFull: nothing was lost, and there is no room to go on.
    """
    folder, place = lab.run(task.run), place or Place()
    report = Report(folder.name, "train", 0, task.spec.train.steps, float("nan"))
    with ExitStack() as held:
        yield from _claimed(folder, held, report)
        folder.create(task.spec)
        if _mendable(folder):
            folder.reopen()
        if folder.result() is None and task.spec.init_from is not None:
            deferred = yield from _parent_first(lab, task, device, place, report)
            if deferred:
                return
        if not is_complete(lab, task):
            judged = verdict(settled(folder, place))
            if judged.whole_device and not place.whole:
                yield replace(report, phase=DEFERRED)
                return
            if judged.last is None:
                with attempt(folder, task.spec, place) as course:
                    report = yield from _worked(lab, task, device, course, report)
            elif folder.result() is None:
                _give_up(folder, judged)
            report = replace(report, note=judged.last.reason if judged.last else "")
        result = folder.result() or {}
        note = result.get("reason", report.note)
        yield replace(report, phase=result["state"], step=report.steps, note=note)


def _claimed(folder: RunFolder, held: ExitStack, report: Report) -> Iterator[Report]:
    """Become the only process that works on a run, reporting while another one does."""
    while True:
        try:
            held.enter_context(folder.claim())
            return
        except Busy as busy:
            yield replace(report, note=str(busy))
            time.sleep(_AGAIN)


def _worked(
    lab: Lab, task: Task, device: torch.device, course: Course, report: Report
) -> Generator[Report, None, Report]:
    """Train, then measure; returns the last report."""
    folder = lab.run(task.run)
    release(device)  # of a run before it, or of the attempt that this one repeats
    if folder.result() is None:
        report = yield from _trained(folder, task.spec, device, report, course)
    state = folder.state()
    course.ended = "diverged" if state is RunState.DIVERGED else "completed"
    course.measures()
    mistakes: list[UserError] = []
    for spec in task.evaluations if state.measurable else ():
        yield replace(report, phase="evaluate", step=report.steps)
        try:
            with every_forward_pass(course.sign):
                evaluate(folder, spec, device, cache=lab.root / "cache")
        except Unavailable:
            raise
        except DamagedCheckpoint:  # what it said is trained again from the one before it
            folder.reopen()
            return (yield from _worked(lab, task, device, course, report))
        except UserError as error:  # the other evaluations may lack nothing
            mistakes.append(error)
    for mistake in mistakes:
        raise mistake
    return report


def _give_up(folder: RunFolder, judged: Verdict) -> None:
    """End a run as failed, as its last counted attempt ended."""
    assert judged.last is not None
    last, tried = judged.last, len(folder.attempts.read())
    facts = {"kind": last.ended, "reason": last.reason, "traceback": last.traceback}
    folder.finish(RunState.FAILED, **{k: v for k, v in facts.items() if v}, attempts=tried)


def _parent_first(
    lab: Lab, task: Task, device: torch.device, place: Place, report: Report
) -> Generator[Report, None, bool]:
    """Train the run that the task starts from; if that went wrong, the task has failed.

    Its last weights are needed: where they are damaged they are trained again. Returns whether it
    waits for a whole device, and the task with it.
    """
    assert task.spec.init_from is not None
    parent = lab.run_of(task.spec.init_from.run)
    begun = bool(list_checkpoints(lab.run(task.run).checkpoints))
    if not begun and has_lost_its_end(parent, load_latest(parent.checkpoints)):
        with contextlib.suppress(Busy), parent.claim():
            parent.reopen()
    if parent.result() is None:
        for step in run_trial(lab, Task(task.spec.init_from.run), device, place):
            if step.phase == DEFERRED:
                yield replace(report, phase=DEFERRED)
                return True
            yield report
    state = parent.state()
    if not state.measurable:
        reason = f"run {parent.name}, which it starts from, has {state}"
        lab.run(task.run).finish(RunState.FAILED, kind="parent", reason=reason)
    return False


def _trained(
    folder: RunFolder, spec: RunSpec, device: torch.device, report: Report, course: Course
) -> Generator[Report, None, Report]:
    """Train to the end and write the result; returns the last report."""
    check_room(spec, device)
    folder.write_origin({**origin(device), "started": time.time()})
    progress, memory = Progress(0, spec.train.steps, float("nan")), PeakMemory(device)
    try:
        with closing(train(spec, folder, device)) as steps:  # type: ignore[type-var]
            for progress in steps:
                at = (progress.step, progress.steps, progress.loss, progress.overflows)
                report = Report(folder.name, "train", *at)
                course.sign()
                yield report
    except Diverged as diverged:
        folder.finish(RunState.DIVERGED, kind="diverged", step=progress.step, reason=str(diverged))
        return report
    metrics = _costs(folder, spec, device, progress.seconds / progress.step, memory.bytes())
    if spec.precision == "fp16":
        metrics[metric_names.OVERFLOWS] = progress.overflows
    folder.finish(RunState.COMPLETED, step=progress.step, metrics=metrics)
    return report


def _costs(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    mean_seconds: float,
    peak_memory: int | None,
) -> dict[str, float]:
    """Return what the run cost, under the names of the record.

    Args:
        mean_seconds: the training time of all steps over their number.
    """
    step_seconds = median_step_seconds(folder.entries(), spec.train.batch) or mean_seconds
    flops, peak = cost(spec).train_flops, peak_flops(device)
    before = sum(cost(parent).train_flops for parent in spec.ancestors)
    values: dict[str, float] = {
        metric_names.TRAIN_FLOPS: flops,
        metric_names.FAMILY_FLOPS: before + flops,
        metric_names.TRAIN_SECONDS: mean_seconds * spec.train.steps,
        metric_names.STEP_SECONDS: step_seconds,
        metric_names.IMAGES_PER_S: spec.train.batch / step_seconds,
    }
    if peak_memory is not None:
        values[metric_names.PEAK_MEMORY] = peak_memory
    if peak is not None:
        values[metric_names.MFU] = flops / spec.train.steps / step_seconds / peak
    return values


def median_step_seconds(entries: Iterable[Entry], batch: int) -> float | None:
    """Return the median of the logged seconds a step, or None before the second entry.

    The first entry is left out, because it holds the warm-up; a median forgets the moments in
    which something else ran on the machine.
    """
    speeds = [entry.value for entry in entries if entry.key == metric_names.TRAIN_IMAGES_PER_S][1:]
    return batch / statistics.median(speeds) if speeds else None
