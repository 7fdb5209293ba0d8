"""One task carried out: lock the run, train it, evaluate it, and record how the attempt ended."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import statistics
import time
import traceback
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import torch

import tread_lab
from tread_lab.config.errors import Exploded, NotFinite, Unavailable, UserError, first_line
from tread_lab.config.run import RunSpec
from tread_lab.cost.training import cost
from tread_lab.data.source import check_content
from tread_lab.evaluate.measuring import measuring
from tread_lab.records import metric_names
from tread_lab.records.durable import disk_error
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.records.run_folder import RunFolder, list_checkpoints, step_of
from tread_lab.records.run_state import TRIES, Attempt, RunState, kind_of
from tread_lab.sweep.task import Task, is_complete
from tread_lab.train.device import (
    check_memory,
    memory,
    name,
    peak_bytes,
    peak_flops,
    release,
    reset_peak,
)
from tread_lab.train.provenance import fingerprint, of_nodes, origin
from tread_lab.train.ranks import Processes, Ranks
from tread_lab.train.trainer import Diverged, Progress, train

T = TypeVar("T")
_POLL_SECONDS = 1.0  # between two tries to lock a run that another process works on
QUEUED = "queued"  # phase of a task that starts once more
PAUSED = "paused"  # phase of a task that has ended at a rung
UNDER_WAY = ("train", "evaluate", QUEUED)  # phases of a task that has not ended


@dataclass(frozen=True)
class Report:
    """The progress of a task.

    Attributes:
        phase: `train`, `evaluate`, `QUEUED`, `PAUSED`, or the terminal state of the run.
        overflows: steps skipped because fp16 overflowed.
        note: a remark for the user, e.g. the reason of a failure.
        measured: finished share of the current evaluation.
    """

    run: str
    phase: str
    step: int
    steps: int
    loss: float = math.nan
    overflows: int = 0
    note: str = ""
    measured: float = 0.0

    @property
    def share(self) -> float:
        """Finished share of the training steps."""
        return self.step / max(self.steps, 1)


@dataclass(frozen=True)
class WorkerInfo:
    """Information from the runner for the process that executes a task.

    Attributes:
        driver: the session; attempts are counted per session.
        processes: starts the processes of a run, one per device.
        hang_timeout: seconds without a step before the process is ended; `None` for no limit.
        runs_per_device: maximum of runs on its device.
        expected: the driver's digests of code and data, and package versions; empty if the driver
            trains.
    """

    driver: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    processes: Processes = field(default_factory=Processes)
    hang_timeout: float | None = None
    runs_per_device: int = 1
    expected: Mapping[str, str] = field(default_factory=dict)


class AttemptFailed(Exception):
    """A recorded attempt raised; the next attempt, in a clean process, may succeed."""


def run_task(
    lab: Lab, task: Task, device: torch.device, worker: WorkerInfo | None = None
) -> Generator[Report]:
    """Make one attempt at a task; yield a report after every step and evaluated batch.

    Resumes from the last checkpoint. Closing the iterator saves a checkpoint. After the last
    attempt of a session the run is `failed`. Waits while another process holds the run's lock.

    Raises:
        AttemptFailed: call again for the next attempt.
        UserError: missing files or memory; not counted as an attempt.
        Unavailable: a full disk, or a worker with other code, packages or data.
    """
    folder, worker = lab.run(task.run), worker or WorkerInfo()
    report = Report(task.run, "train", 0, task.spec.train.steps)
    _check_equal(task.spec, folder, device, worker)
    with ExitStack() as lock:
        while True:
            try:
                lock.enter_context(folder.lock())
                break
            except Busy as busy:
                yield replace(report, note=str(busy))
                time.sleep(_POLL_SECONDS)
        folder.create(task.spec, task.defaults, task.kept_steps)
        if lacking := task.lacking(folder):
            _rewind(folder, before=lacking[0])
        if (died := _close_open_attempt(folder)) is not None and died.driver == worker.driver:
            yield replace(report, phase=QUEUED, note=f"{died.reason}; it starts again")
        _check_parent(lab, folder, task.spec)
        last = _last_try(folder, worker)
        if last is not None and folder.result() is None:
            facts = {"kind": last.ended, "reason": last.reason, "traceback": last.traceback}
            folder.finish(RunState.FAILED, **facts)
        if last is None and not is_complete(lab, task):
            report = yield from _attempt(lab, task, device, worker, report)
        result = folder.result() or {"state": PAUSED}
        note = result.get("reason") or (last.reason if last else report.note)
        yield replace(report, phase=result["state"], step=folder.step(), note=note)


def _check_equal(
    spec: RunSpec, folder: RunFolder, device: torch.device, worker: WorkerInfo
) -> None:
    """Refuse a worker that would train something else than its driver planned.

    Raises:
        Unavailable: its code, packages or data differ, or cannot be read.
    """
    if not worker.expected:
        return
    node = f"node {os.uname().nodename}"
    try:
        check_content(spec.data, folder.cache)
        found = of_nodes(fingerprint(spec, device.type))
    except UserError as error:
        raise Unavailable(f"{node}: {error}") from None
    for what, expected in worker.expected.items():
        if found.get(what) != expected:
            raise Unavailable(
                f"{node}: {what} must be {expected} as on the driver's node, got"
                f" {found.get(what, 'none')} (code in {Path(tread_lab.__file__).parent}). Make"
                " them equal, or remove the node."
            )


def _rewind(folder: RunFolder, *, before: int) -> None:
    """Let a run continue from its newest checkpoint before a step; its evaluations stay."""
    folder.reopen()
    for path in list_checkpoints(folder.checkpoints):
        if step_of(path) > before:
            path.unlink()


def _close_open_attempt(folder: RunFolder) -> Attempt | None:
    """Record that the process of the last attempt died; `None` if it had ended otherwise.

    The caller holds the run's lock, so that an open attempt has no process any more.
    """
    last = next(reversed(folder.attempts()), None)
    if last is None or last.ended:
        return None
    stacks = folder.stacks_path
    hung = stacks.exists() and stacks.stat().st_size
    why = f"made no step in time (stacks in {stacks})" if hung else "ended without a word"
    return folder.close_attempt(last, "died", reason=f"process {last.pid} on {last.host} {why}")


def _last_try(folder: RunFolder, worker: WorkerInfo) -> Attempt | None:
    """Return the attempt that used up the tries of this session, `None` if one more follows."""
    tries = [attempt for attempt in folder.attempts() if attempt.driver == worker.driver]
    used = (kind for kind, most in TRIES.items() if sum(a.ended == kind for a in tries) >= most)
    return tries[-1] if any(used) else None


def _check_parent(lab: Lab, folder: RunFolder, spec: RunSpec) -> None:
    """End a run as failed whose parent has no weights.

    Raises:
        UserError: the parent is to be trained first, or another process holds its lock.
    """
    if spec.parent is None or folder.result() is not None or list_checkpoints(folder.checkpoints):
        return
    parent = lab.run_of(spec.parent)
    state = parent.state()
    reason = f"init_from: run {parent.name} must be completed, got {state}"
    if not state.ended:
        raise UserError(f"{reason}. Try the same command again.")
    if not state.measurable:
        folder.finish(RunState.FAILED, kind="parent", reason=reason)


def _attempt(
    lab: Lab, task: Task, device: torch.device, worker: WorkerInfo, report: Report
) -> Generator[Report, None, Report]:
    """Carry the task out, with the attempt and its end on record; return the last report."""
    folder, spec = lab.run(task.run), task.spec
    check_content(spec.data, folder.cache)
    attempt = folder.open_attempt(
        driver=worker.driver,
        host=os.uname().nodename,
        pid=os.getpid(),
        runs_per_device=worker.runs_per_device,
        devices=worker.processes.count,
        fingerprint=fingerprint(spec, device.type),
        origin=origin(spec, device) if folder.result() is None else {},
    )
    work = _train_and_evaluate(lab, task, device, worker, report)
    try:
        report = yield from _ended_if_silent(work, folder.stacks_path, worker.hang_timeout)
    except BaseException as error:
        failure = _close(folder, attempt, error, spec)
        if failure is None:
            raise
    else:
        folder.close_attempt(attempt, report.phase if folder.result() is None else folder.state())
        return report
    raise failure  # without the error, whose traceback would keep what the run held in memory


def _close(
    folder: RunFolder, attempt: Attempt, error: BaseException, spec: RunSpec
) -> Exception | None:
    """Record how an error ended an attempt; return what is raised in its place, if anything."""
    kind, facts = kind_of(error), dict[str, str]()
    if kind != "interrupted":
        facts["reason"] = str(error)
    if kind in TRIES or kind == "oom":
        facts["reason"] = f"{type(error).__name__}: {error}"
        facts["traceback"] = "".join(traceback.format_exception(error))
    with contextlib.suppress(UserError):  # a full disk has no room for this either
        folder.close_attempt(attempt, kind, **facts)
    if kind == "disk" and isinstance(error, OSError):
        return disk_error(error, folder.path)
    if kind == "oom":
        images = min(cost(spec).micro_batch, spec.train.batch // attempt.devices)
        what = f"{type(error).__name__}: {first_line(error)}"
        if images == 1 or folder.result() is not None:  # no smaller pass, or an evaluation
            return UserError(
                f"memory: must be enough for run {folder.name}, got {what}. Try a device with more"
                " memory, and run the same command again."
            )
        return UserError(
            f"execution.micro_batch: must be smaller for run {folder.name}, got {images}: {what}."
            f" Try {images // 2}, which keeps the run, and run the same command again."
        )
    return AttemptFailed(facts["reason"]) if kind in TRIES else None


def _ended_if_silent(
    steps: Generator[Report, None, T], stacks: Path, seconds: float | None
) -> Generator[Report, None, T]:
    """Yield from `steps`; a step that takes longer ends this process, with all stacks in a file."""
    stacks.unlink(missing_ok=True)
    if not seconds:
        return (yield from steps)
    with closing(steps), stacks.open("w") as file:
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True, file=file)
            try:
                report = next(steps)
            except StopIteration as end:
                stacks.unlink()
                result: T = end.value
                return result
            finally:
                faulthandler.cancel_dump_traceback_later()
            yield report


def _train_and_evaluate(
    lab: Lab, task: Task, device: torch.device, worker: WorkerInfo, report: Report
) -> Generator[Report, None, Report]:
    """Train the run if it has no result, then evaluate it; return the last report."""
    folder = lab.run(task.run)
    with worker.processes.open(device) as ranks:
        release(device)  # of the run before, or of the attempt that this one repeats
        if folder.result() is None:
            report = yield from _train(folder, task, device, ranks)
            release(device)  # of the training
        if report.phase == PAUSED or folder.state().measurable:
            with suppress(Exploded):  # the run is diverged, a result
                yield from _evaluate(lab, task, device, replace(report, phase="evaluate"), ranks)
        return report


def _train(
    folder: RunFolder, task: Task, device: torch.device, ranks: Ranks
) -> Generator[Report, None, Report]:
    """Train to the end and write the result, or to the rung; return the last report."""
    spec = task.spec
    check_memory(spec, device.type, f"{device} ({name(device)})", memory(device), ranks.count)
    begun = max(map(step_of, list_checkpoints(folder.checkpoints)), default=0)
    reset_peak(device)
    progress = Progress(begun, spec.train.steps, math.nan)
    report = Report(folder.name, "train", begun, spec.train.steps)
    try:
        training = train(spec, folder, device, ranks, until=task.until)
        with closing(training) as steps:  # type: ignore[type-var]
            for progress in steps:
                at = (progress.step, progress.steps, progress.loss, progress.overflows)
                report = Report(folder.name, "train", *at)
                yield report
    except Diverged as end:
        folder.finish(RunState.DIVERGED, kind="diverged", step=progress.step, reason=str(end))
        return report
    if task.rung is not None:
        return replace(report, phase=PAUSED)
    mean_seconds = progress.seconds / max(progress.step, 1)
    memory_used = peak_bytes(device) if progress.step > begun else None  # of training steps
    metrics = run_costs(folder, spec, device, ranks.count, mean_seconds, memory_used)
    if spec.precision == "fp16":
        metrics[metric_names.OVERFLOWS] = progress.overflows
    devices = {"devices": ranks.count} if ranks.count > 1 else {}
    folder.finish(RunState.COMPLETED, step=progress.step, metrics=metrics, **devices)
    return report


def _evaluate(
    lab: Lab, task: Task, device: torch.device, report: Report, ranks: Ranks
) -> Iterator[Report]:
    """Carry out every open evaluation; raise the first user error after the last evaluation."""
    user_errors: list[UserError] = []
    folder, cache = lab.run(task.run), lab.root / "cache"
    report = replace(report, step=task.until)
    for spec in task.measurable(folder):
        if folder.evaluation(spec).done:
            continue
        yield report
        try:
            with closing(measuring(folder, spec, device, cache=cache, ranks=ranks)) as batches:
                for done, total in batches:
                    yield replace(report, measured=done / total)
        except (Unavailable, Exploded):
            raise
        except UserError as error:  # the other evaluations may lack nothing
            if isinstance(error, NotFinite) and task.rung is not None:
                raise Exploded(*error.args) from None
            user_errors.append(error)
    if user_errors:
        raise user_errors[0]


def run_costs(
    folder: RunFolder,
    spec: RunSpec,
    device: torch.device,
    devices: int,
    mean_seconds: float,
    memory: int | None,
) -> dict[str, float]:
    """Return the cost of the run, by recorded name.

    Runs that changed devices have no times.

    Args:
        devices: number of devices like `device`.
        mean_seconds: mean training time per step.
        memory: peak bytes of one device, or `None` if unknown.
    """
    steps, flops = spec.train.steps, cost(spec).train_flops
    parents = sum(cost(parent).train_flops for parent in spec.ancestors)
    costs: dict[str, float] = {
        metric_names.TRAIN_FLOPS: flops,
        metric_names.FAMILY_FLOPS: parents + flops,
    }
    if not steps:
        return costs
    if memory is not None:
        costs[metric_names.PEAK_MEMORY] = memory
    if len({(origin.get("devices"), origin.get("model")) for origin in folder.origin()}) > 1:
        return costs
    logged = (e.value for e in folder.entries() if e.key == metric_names.TRAIN_IMAGES_PER_S)
    speeds = [*logged][1:]  # the first holds the warm-up; a median forgets what ran beside
    step_seconds = spec.train.batch / statistics.median(speeds) if speeds else mean_seconds
    costs[metric_names.TRAIN_SECONDS] = mean_seconds * steps
    costs[metric_names.STEP_SECONDS] = step_seconds
    costs[metric_names.IMAGES_PER_S] = spec.train.batch / step_seconds
    if (peak := peak_flops(device)) is not None:
        costs[metric_names.MFU] = flops / steps / step_seconds / (devices * peak)
    return costs
