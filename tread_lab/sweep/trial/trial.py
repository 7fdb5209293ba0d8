"""Carries out one task: trains its run, evaluates it, and records how the run ended."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

import torch

from tread_lab.cost.training import cost
from tread_lab.engine.assemble import has_lost_its_end
from tread_lab.engine.checkpoint import DamagedCheckpoint, newest_whole_step
from tread_lab.engine.device import PeakMemory, memory, name, peak_flops, release
from tread_lab.engine.evaluate import measuring
from tread_lab.engine.memory import check_memory
from tread_lab.engine.provenance import origin
from tread_lab.engine.ranks import Ranks
from tread_lab.engine.train import Diverged, Progress, train
from tread_lab.records import metric_names
from tread_lab.records.attempts import Attempt
from tread_lab.records.checkpoint_names import list_checkpoints, step_of
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.log import Entry
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import Exploded, Unavailable, UserError
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.trial.attempt import (
    OpenAttempt,
    WorkerInfo,
    attempt,
    check_node,
    counted_attempts,
)
from tread_lab.sweep.trial.retry import PARENT, last_try
from tread_lab.sweep.trial.task import Task, is_measured
from tread_lab.sweep.trial.watchdog import every_forward_pass

_POLL_SECONDS = 1.0  # between two tries to lock a run that another process works on
QUEUED = "queued"  # phase of a task that waits for another worker
UNDER_WAY = ("train", "evaluate", QUEUED)  # phases of a task that has not ended


@dataclass(frozen=True)
class Report:
    """The progress of a task, as its worker reports it.

    Attributes:
        phase: `train`, `evaluate`, a terminal state of the run, or `QUEUED`.
        overflows: steps that were skipped because fp16 overflowed.
        note: a remark for the user, such as the reason of a failure.
        measured: the share of the evaluation under way that is done.
    """

    run: str
    phase: str
    step: int
    steps: int
    loss: float
    overflows: int = 0
    note: str = ""
    measured: float = 0.0

    @property
    def share(self) -> float:
        """The share of the training steps that is done."""
        return self.step / max(self.steps, 1)


def run_trial(
    lab: Lab, task: Task, device: torch.device, worker: WorkerInfo | None = None
) -> Iterator[Report]:
    """Make one attempt to complete a task; report after every step and before every evaluation.

    A run continues from its last checkpoint, after its parent has a result. Closing the iterator
    saves a checkpoint and stops. A loss that is not finite ends the run as `diverged`. Any other
    exception closes the attempt and passes to the caller, who calls again until the retry policy
    ends the run as `failed`. While another process holds the run's lock, this one waits.

    Raises:
        NodeMismatch: this node differs from its driver; it has left nothing of the run behind.
        DiskFull: the disk has no room to go on; nothing that was saved is lost.
    """
    folder, worker = lab.run(task.run), worker or WorkerInfo()
    provenance = check_node(folder, task.spec, device, worker)
    report = Report(task.run, "train", 0, task.spec.train.steps, float("nan"))
    with ExitStack() as locks:
        yield from _wait_for_lock(folder, locks, report)
        folder.create(task.spec)
        folder.keep_defaults(task.defaults)
        folder.keep_steps(task.kept_steps, asked=task.spec.execution.keep_steps)
        if lacking := task.lacking(folder):
            _train_again(folder, before=lacking[0])
        report = yield from _attempt(lab, task, device, worker, report, provenance)
        result = folder.result() or {}
        note = result.get("reason", report.note)
        yield replace(report, phase=result["state"], step=report.steps, note=note)


def _train_again(folder: RunFolder, *, before: int) -> None:
    """Let a run go on from its newest checkpoint before a step; what was measured of it stays."""
    folder.reopen()
    for path in list_checkpoints(folder.checkpoints):
        if step_of(path) > before:
            path.unlink()


def _wait_for_lock(folder: RunFolder, locks: ExitStack, report: Report) -> Iterator[Report]:
    """Add the run's lock to `locks`; report as long as another process holds it."""
    while True:
        try:
            locks.enter_context(folder.lock())
            return
        except Busy as busy:
            yield replace(report, note=str(busy))
            time.sleep(_POLL_SECONDS)


def _attempt(
    lab: Lab,
    task: Task,
    device: torch.device,
    worker: WorkerInfo,
    report: Report,
    provenance: Mapping[str, str] | None,
) -> Generator[Report, None, Report]:
    """Train the parent, then make the attempt that the retry policy allows; return the last
    report."""
    folder = lab.run(task.run)
    if folder.result() is None and task.spec.parent is not None:
        parent = Task(task.spec.parent, defaults=task.defaults)
        yield from _train_parent(lab, task, parent, device, worker, report)
        _fail_without_parent(folder, lab.run(parent.run))
    if folder.result() is not None and is_measured(lab, task):
        return report
    if (last := last_try(counted_attempts(folder, worker))) is not None:
        _give_up(folder, last)
        return replace(report, note=last.reason)
    with attempt(folder, task.spec, device, worker, provenance) as under_way:
        return (yield from _train_and_evaluate(lab, task, device, under_way, report))


def _train_and_evaluate(
    lab: Lab, task: Task, device: torch.device, under_way: OpenAttempt, report: Report
) -> Generator[Report, None, Report]:
    """Train the run if it has no result, then evaluate it; return the last report.

    If the last checkpoint is damaged, the run is trained again from the one before it.
    """
    folder = lab.run(task.run)
    with under_way.worker.processes.open(device) as ranks:
        while True:
            release(device)  # of the run before, or of the attempt that this one repeats
            if folder.result() is None:
                report = yield from _train(folder, task.spec, device, report, under_way, ranks)
                release(device)  # of the training
            state = folder.state()
            under_way.ended = "diverged" if state is RunState.DIVERGED else "completed"
            under_way.start_evaluating()
            if not state.measurable:
                return report
            try:
                yield from _evaluate(lab, task, device, under_way, report, ranks)
                return report
            except DamagedCheckpoint:
                folder.reopen()
            except Exploded as end:
                under_way.ended = "diverged"
                step = folder.step()
                folder.finish(RunState.DIVERGED, kind="diverged", step=step, reason=str(end))
                return report


def _evaluate(
    lab: Lab,
    task: Task,
    device: torch.device,
    under_way: OpenAttempt,
    report: Report,
    ranks: Ranks,
) -> Iterator[Report]:
    """Carry out every open evaluation; raise the first user error after the last evaluation.

    What a run cannot give is on record: another evaluation does not raise it again.
    """
    user_errors: list[UserError] = []
    folder, cache = lab.run(task.run), lab.root / "cache"
    for spec in task.measurable(folder):
        if folder.evaluation(spec).done:
            continue
        yield replace(report, phase="evaluate", step=report.steps)
        try:
            with every_forward_pass(under_way.progress):
                with closing(measuring(folder, spec, device, cache=cache, ranks=ranks)) as batches:
                    for done, total in batches:
                        measured = done / total
                        yield replace(
                            report, phase="evaluate", step=report.steps, measured=measured
                        )
        except (Unavailable, DamagedCheckpoint, Exploded):
            raise
        except UserError as error:  # the other evaluations may lack nothing
            user_errors.append(error)
    if user_errors:
        raise user_errors[0]


def _give_up(folder: RunFolder, last: Attempt) -> None:
    """End a run as failed, as `last` ended; keep the result of a run that is trained."""
    if folder.result() is not None:
        return
    facts = {"kind": last.ended, "reason": last.reason, "traceback": last.traceback}
    attempts = len(folder.attempts.read())
    folder.finish(RunState.FAILED, **{k: v for k, v in facts.items() if v}, attempts=attempts)


def _train_parent(
    lab: Lab, task: Task, parent: Task, device: torch.device, worker: WorkerInfo, report: Report
) -> Iterator[Report]:
    """Train the run that the task starts from.

    A parent with a result is trained again only if its last weights are damaged and the task has
    not started from them yet.
    """
    folder = lab.run(parent.run)
    has_started = bool(list_checkpoints(lab.run(task.run).checkpoints))
    newest = 0 if has_started or folder.result() is None else newest_whole_step(folder.checkpoints)
    if not has_started and has_lost_its_end(folder, newest):
        with contextlib.suppress(Busy), folder.lock():
            folder.reopen()
    if folder.result() is None:
        expected = {k: v for k, v in worker.expected.items() if k.startswith(("code", "package"))}
        worker = replace(worker, expected=expected)  # a parent may see other data
        for _ in run_trial(lab, parent, device, worker):
            yield report


def _fail_without_parent(folder: RunFolder, parent: RunFolder) -> None:
    """End a run as failed if its parent has no weights to start from."""
    if not (state := parent.state()).measurable:
        reason = f"run {parent.name}, which it starts from, has {state}"
        folder.finish(RunState.FAILED, kind=PARENT, reason=reason)


def _train(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    report: Report,
    under_way: OpenAttempt,
    ranks: Ranks,
) -> Generator[Report, None, Report]:
    """Train to the end and write the result; return the last report."""
    check_memory(spec, device.type, f"{device} ({name(device)})", memory(device), ranks.count)
    facts = {"devices": ranks.count, "started": time.time()}
    folder.write_origin({**origin(spec, device), **facts})
    progress, peak = Progress(0, spec.train.steps, float("nan")), PeakMemory(device)
    try:
        with closing(train(spec, folder, device, ranks)) as steps:  # type: ignore[type-var]
            for progress in steps:
                at = (progress.step, progress.steps, progress.loss, progress.overflows)
                report = Report(folder.name, "train", *at)
                under_way.progress()
                yield report
    except Diverged as end:
        folder.finish(RunState.DIVERGED, kind="diverged", step=progress.step, reason=str(end))
        return report
    mean_seconds = progress.seconds / max(progress.step, 1)
    metrics = _costs(folder, spec, device, ranks.count, mean_seconds, peak.bytes())
    if spec.precision == "fp16":
        metrics[metric_names.OVERFLOWS] = progress.overflows
    devices = {"devices": ranks.count} if ranks.count > 1 else {}
    folder.finish(RunState.COMPLETED, step=progress.step, metrics=metrics, **devices)
    return report


def _costs(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    devices: int,
    mean_seconds: float,
    memory: int | None,
) -> dict[str, float]:
    """Return what the run cost, under the names of the record.

    Times of a run that went on on other devices are those that these take for all its steps; there
    are none where these logged too little.

    Args:
        devices: how many like `device` trained it.
        mean_seconds: the training time of all steps over their number.
        memory: the peak in bytes of one, `None` where the device does not tell.
    """
    steps, flops = spec.train.steps, cost(spec).train_flops
    parents = sum(cost(parent).train_flops for parent in spec.ancestors)
    costs: dict[str, float] = {
        metric_names.TRAIN_FLOPS: flops,
        metric_names.FAMILY_FLOPS: parents + flops,
    }
    if not steps:
        return costs
    entries, peak = folder.entries(), peak_flops(device)
    since = _on_other_devices_until(folder.origin())
    own = [entry for entry in entries if entry.time >= since]
    step_seconds = median_step_seconds(own, spec.train.batch)
    if not since:
        step_seconds = step_seconds or mean_seconds
    elif step_seconds is not None:
        mean_seconds = step_seconds
    if memory is not None:
        costs[metric_names.PEAK_MEMORY] = memory
    if step_seconds is None:
        return costs
    costs[metric_names.TRAIN_SECONDS] = mean_seconds * steps
    costs[metric_names.STEP_SECONDS] = step_seconds
    costs[metric_names.IMAGES_PER_S] = spec.train.batch / step_seconds
    if peak is not None:
        costs[metric_names.MFU] = flops / steps / step_seconds / (devices * peak)
    return costs


def _on_other_devices_until(origins: Sequence[Mapping[str, Any]]) -> float:
    """Return when the devices that ended a run took it over from others; 0 if it had one kind."""
    had = [(one.get("devices"), one.get("model")) for one in origins]
    others = [n for n, devices in enumerate(had) if devices != had[-1]]
    since = float(origins[others[-1] + 1].get("started", 0.0)) if others else 0.0
    return round(since, 3)  # as times in logs are


def median_step_seconds(entries: Iterable[Entry], batch: int) -> float | None:
    """Return the median of the logged seconds a step, or `None` before the second entry.

    The first entry is left out, because it holds the warm-up; a median forgets the moments in
    which something else ran on the machine.
    """
    speeds = [entry.value for entry in entries if entry.key == metric_names.TRAIN_IMAGES_PER_S][1:]
    return batch / statistics.median(speeds) if speeds else None
