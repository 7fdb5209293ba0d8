"""The Ray runner: Tune starts and restarts workers; what they did is in the records alone."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.search import Searcher

from tread_lab.config.errors import Unavailable, UserError, first_line
from tread_lab.hardware import DeviceFacts, Devices, RunResources, cpus_here
from tread_lab.records.lab import Lab
from tread_lab.sweep.run_task import UNDER_WAY, AttemptFailed, Report, WorkerInfo, run_task
from tread_lab.sweep.runner import Interrupted, ReportHandler, UserErrors, stop_signals
from tread_lab.sweep.task import Task, TaskQueue
from tread_lab.train.device import model, pick, precisions
from tread_lab.train.provenance import fingerprint, of_nodes

_MAX_FAILURES = 10  # restarts of a worker for one task; the record ends a run long before
_REPORT_SECONDS = 1.0  # how long a worker trains between two reports
_MISTAKE, _UNAVAILABLE = "mistake", "unavailable"  # phases of tasks that no further try can mend
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `stop_signals` handles SIGINT and SIGTERM alike
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextmanager
def cluster() -> Iterator[None]:
    """Provide Ray within the block: the cluster at RAY_ADDRESS, or local workers.

    Raises:
        Unavailable: Ray did not start, or the cluster cannot be joined.
    """
    if ray.is_initialized():
        yield
        return
    scratch = tempfile.mkdtemp(prefix="tread-lab-", dir="/tmp")  # Ray's sockets need a short path
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _init(scratch)
        signal.signal(signal.SIGTERM, handler)  # Ray's own exits at once, without a checkpoint
        yield
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, handler)
        shutil.rmtree(scratch, ignore_errors=True)


def _init(scratch: str) -> None:
    os.environ.update({k: v for k, v in _ENVIRONMENT.items() if k not in os.environ})
    address = os.environ.get("RAY_ADDRESS")
    local = {"num_cpus": cpus_here(), "include_dashboard": False, "_temp_dir": scratch}
    where = f"the Ray cluster at {address} (RAY_ADDRESS)" if address else "Ray on this machine"
    # `scancel` signals every process: Ray's daemons must not end before runs have checkpoints.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({} if address else local))
    except Exception as error:  # Ray raises many kinds, bare `Exception` among them
        raise Unavailable(f"{where} does not start: {first_line(error)[:200]}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def cluster_devices(resources: RunResources) -> Devices:
    """Return the devices of the cluster, from one node with room for a run.

    Raises:
        UserError: no node has room for a run.
        Unavailable: a worker or its device fails to start.
    """
    with cluster():
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        slots = sum(resources.slots(n.get("CPU", 0), n.get("GPU", 0)) for n in nodes)
        if not slots:
            raise UserError(
                f"--cpus, --gpus: must fit a node of the cluster, got {resources.cores} cores and "
                f"{resources.gpus:g} GPUs per run. Try smaller values."
            )
        asks = ray.remote(num_cpus=resources.cores, num_gpus=resources.gpus, max_retries=0)
        try:
            facts: DeviceFacts = ray.get(asks(_facts).remote(resources.worker_device))
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise Unavailable(f"a worker of the cluster: {first_line(cause)}") from error
    return resources.on(Devices((facts,)), slots)


def _facts(device: str) -> DeviceFacts:
    working = _working(device)
    return DeviceFacts(working.type, model(working), precisions(working))


def _working(device: str) -> torch.device:
    """Return the device of this worker.

    Raises:
        Unavailable: it does not work; names the node.
    """
    if not device.startswith("cuda"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides no GPU from a worker that has none
    try:
        working = pick(device)
        torch.zeros(1, device=working)
    except (UserError, RuntimeError, AssertionError) as error:
        raise Unavailable(f"node {platform.node()}: {device}: {first_line(error)}") from error
    return working


@dataclass(frozen=True, repr=False)
class Job:
    """A task for a worker; Tune names trials by the text of their configuration.

    Attributes:
        goes_on: a file of the driver in the lab; removing it stops the workers.
    """

    lab: Lab
    task: Task
    resources: RunResources
    worker: WorkerInfo
    goes_on: Path

    def __str__(self) -> str:
        return self.task.run

    def report(self, phase: str, note: str) -> Report:
        return Report(self.task.run, phase, 0, self.task.spec.train.steps, note=note)

    def reports(self) -> Generator[Report]:
        """Yield the task's reports; the last one can be a permanent error."""
        try:
            if not self.goes_on.parent.exists():
                raise Unavailable(f"node {platform.node()}: must mount {self.lab.root}")
            torch.set_num_threads(self.resources.cpus)
            device = _working(self.resources.worker_device)
            yield from run_task(self.lab, self.task, device, self.worker)
        except AttemptFailed:
            os._exit(1)  # Tune starts another process, which CUDA errors do not reach
        except Unavailable as error:
            yield self.report(_UNAVAILABLE, str(error))
        except UserError as error:
            yield self.report(_MISTAKE, str(error))


class Worker(tune.Trainable):
    """A Ray Tune worker process that executes tasks; a Tune step runs a task for one second."""

    _reports: Generator[Report] | None = None

    def setup(self, config: dict[str, Any]) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.job: Job = new_config["job"]
        self._reports = self.job.reports()
        return True

    def step(self) -> dict[str, Any]:
        """Continue for a second; return the last report."""
        assert self._reports is not None
        until, report = time.monotonic() + _REPORT_SECONDS, next(self._reports)
        while report.phase in UNDER_WAY and not report.note and time.monotonic() < until:
            report = next(self._reports)
        done = report.phase not in UNDER_WAY
        done = done or not self.job.goes_on.exists()
        if done:  # the lock of the run is free before Tune finds more work for this process
            self.cleanup()
        return {"report": vars(report), "done": done}

    def cleanup(self) -> None:
        if self._reports is not None:
            self._reports.close()
            self._reports = None


class RayRunner:
    """Runs tasks on the Ray cluster at RAY_ADDRESS, or on local workers."""

    def __init__(
        self, resources: RunResources | None = None, worker: WorkerInfo | None = None
    ) -> None:
        self.resources, self.worker = resources or RunResources(), worker or WorkerInfo()

    def run(self, lab: Lab, queue: TaskQueue, on_report: ReportHandler) -> None:
        scratch = lab.root / "ray" / self.worker.driver
        with cluster(), stop_signals() as stopping:
            session = TuneSession(self, lab, queue, on_report, stopping, scratch / "goes_on")
            try:
                scratch.mkdir(parents=True, exist_ok=True)
                session.goes_on.touch()
                self._tuner(session, scratch).fit()
            except ray.exceptions.RayError as error:
                raise Unavailable(f"the Ray cluster is lost: {first_line(error)}") from error
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        session.conclude()

    def _tuner(self, session: TuneSession, scratch: Path) -> tune.Tuner:
        bundle = {"CPU": self.resources.cores, "GPU": self.resources.gpus}
        return tune.Tuner(
            tune.with_resources(Worker, tune.PlacementGroupFactory([bundle])),
            tune_config=tune.TuneConfig(
                search_alg=_Searcher(session),
                num_samples=-1,
                reuse_actors=True,
                max_concurrent_trials=self.resources.concurrent,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(scratch),
                callbacks=[session],
                failure_config=tune.FailureConfig(max_failures=_MAX_FAILURES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )


class _InDriver:
    """State of the driver that Ray need not write to disk, and often could not pickle."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneSession(_InDriver, tune.Callback):
    """State of the driver while Tune runs.

    Attributes:
        error: reason to end all tasks with a checkpoint; Tune only logs exceptions of callbacks.
    """

    error: Exception | None = None

    def __init__(
        self,
        runner: RayRunner,
        lab: Lab,
        queue: TaskQueue,
        on_report: ReportHandler,
        asked_to_stop: Callable[[], bool],
        goes_on: Path,
    ) -> None:
        self.runner, self.lab, self.queue, self.on_report = runner, lab, queue, on_report
        self.asked_to_stop, self.goes_on = asked_to_stop, goes_on
        self.user_errors = UserErrors()
        self._ended: list[Task] = []

    def next(self) -> Job | None:
        """Return the next job, or `None` while all remaining tasks wait for others."""
        while self._ended:
            self.queue.ended(self._ended.pop(0))
        task = self.queue.next()
        if task is None:
            return None
        try:
            expected = of_nodes(fingerprint(task.spec, "cpu"))
        except UserError as error:  # its data cannot be read
            self.user_errors.first = self.user_errors.first or error
            self._ended.append(task)
            return self.next()
        worker = replace(self.runner.worker, expected=expected)
        return Job(self.lab, task, self.runner.resources, worker, self.goes_on)

    @property
    def exhausted(self) -> bool:
        """Whether no task will follow."""
        return not self.goes_on.exists() or self.queue.done

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.error or self.asked_to_stop() or self.queue.stop:
            self.goes_on.unlink(missing_ok=True)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        report = Report(**result["report"])
        try:
            if report.phase == _MISTAKE:
                with self.user_errors.collect():
                    raise UserError(report.note)
            elif report.phase == _UNAVAILABLE:
                raise Unavailable(report.note)
            else:
                self.on_report(report)
        except Exception as error:
            self.error = self.error or error

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended.append(trial.config["job"].task)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """End the sweep if workers end without a recorded reason, e.g. if they cannot start."""
        cause = str(trial.get_pickled_error() or "its worker ended").strip().splitlines()
        self.error = self.error or Unavailable(f"run {trial.config['job']}: {cause[-1]}")

    def conclude(self) -> None:
        """Raise the error of the tasks, if any."""
        for task in self._ended:
            self.queue.ended(task)
        if self.error is not None:
            raise self.error
        if self.asked_to_stop() or self.queue.stop:
            raise Interrupted
        self.user_errors.raise_first()


class _Searcher(_InDriver, Searcher):
    """Tune's way to ask for the next trial."""

    def __init__(self, session: TuneSession) -> None:
        super().__init__()
        self.session = session

    def suggest(self, trial_id: str) -> Any:
        job = None if self.session.exhausted else self.session.next()
        if job is None:
            return Searcher.FINISHED if self.session.exhausted else None
        return {"job": job}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Do nothing; `TuneSession` handles it."""

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing for Ray; the records are complete."""
