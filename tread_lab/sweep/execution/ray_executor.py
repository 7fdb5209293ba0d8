"""The executor on Ray Tune: reused workers, our records as the only state that counts."""

from __future__ import annotations

import gc
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.search import Searcher

from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError, first_line
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature
from tread_lab.sweep.execution.early_stopping import Early
from tread_lab.sweep.execution.executor import Interrupted, ReportHandler, UserErrors, stop_signals
from tread_lab.sweep.execution.executors import Share
from tread_lab.sweep.execution.heartbeat import HeartbeatMonitor
from tread_lab.sweep.execution.ray_cluster import alive_nodes, cluster, end_attempt, whole_device
from tread_lab.sweep.execution.ray_early_stopping import GAP, RUNG, Judge
from tread_lab.sweep.execution.ray_errors import CallbackErrors
from tread_lab.sweep.execution.ray_probe import take
from tread_lab.sweep.search.queue import TaskQueue, as_queue
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.trial import DEFERRED, UNDER_WAY, Report, Task, run_trial
from tread_lab.sweep.trial.watchdog import awake

_PER_EXPERIMENT = 200  # tasks; Ray Tune keeps an object for each until the experiment ends
_SLICE_SECONDS = 1.0  # how long a worker trains between two reports
_BARREN = 5  # starts of a worker that make no attempt, after which it is the cluster's fault
MISTAKE, UNAVAILABLE = "mistake", "unavailable"  # phases of tasks that no attempt can mend
_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # workers without GPUs see none
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `stop_signals` handles SIGINT and SIGTERM alike
}


class RayExecutor:
    """Tasks on a Ray cluster, or on this machine; RAY_ADDRESS names a cluster to join.

    Ray's own checkpoints and `Tuner.restore` are not used: a task that is started again finds its
    state in its record.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        concurrent: int | None = None,
        hang_timeout: float | None = None,
        early: Early | None = None,
    ) -> None:
        self.device = Share(device, gpus=gpus).worker_device
        self.cpus, self.gpus = cpus, gpus
        self.concurrent, self.hang_timeout, self.early = concurrent, hang_timeout, early

    def run(self, lab: Lab, work: Sequence[Task] | TaskQueue, on_report: ReportHandler) -> None:
        os.environ.update({k: v for k, v in _QUIET.items() if k not in os.environ})
        user_errors, share = UserErrors(), {"cpu": self.cpus, "gpu": self.gpus}
        with cluster() as driver, stop_signals() as stopping:
            driver.stopping = stopping
            queue = first = as_queue(work)
            for whole in (False, True):  # what needs a whole device has a turn of its own
                need = whole_device(share) if whole else share
                monitor = HeartbeatMonitor(lab, end_attempt)
                watcher = _Watcher(lab, on_report, lambda: stopping() or first.stop, monitor)
                worker = WorkerInfo(whole=whole, hang_timeout=self.hang_timeout)
                while not queue.finished:
                    self._tune(lab, queue, watcher, need, worker)
                    watcher.settle(user_errors)
                    gc.collect()  # an experiment's objects refer to each other
                if not watcher.deferred:
                    break
                queue = as_queue(watcher.deferred)
        user_errors.raise_first()

    def _tune(
        self,
        lab: Lab,
        queue: TaskQueue,
        watcher: _Watcher,
        need: dict[str, float],
        worker: WorkerInfo,
    ) -> None:
        scratch = lab.root / "ray" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        trainable = tune.with_parameters(
            _Worker,
            lab=lab,
            device=self.device,
            threads=int(self.cpus) or 1,
            worker=worker,
            early=self.early,
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, need),
            tune_config=tune.TuneConfig(
                search_alg=_Asks(queue, watcher.errors),
                scheduler=None if self.early is None else Judge(self.early, watcher.errors),
                num_samples=-1,
                reuse_actors=True,
                max_concurrent_trials=self.concurrent,
            ),
            run_config=tune.RunConfig(
                name=scratch.name,
                storage_path=str(scratch.parent),
                callbacks=[watcher],
                stop=_Stop(watcher.stopping),
                failure_config=tune.FailureConfig(max_failures=-1),  # the record decides
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        except tune.TuneError:
            watcher.errors.raise_first()
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        watcher.errors.raise_first()


class _Stays:
    """Ray writes what it is given to disk; what lives in the driver has nothing to write.

    A live display cannot be pickled, nor need a copy of it ever be read.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, repr=False)
class _Sent:
    """A task on its way to a worker; Ray names trials by the text of their configuration."""

    task: Task

    def __str__(self) -> str:
        return signature(self.task.spec)


class _Asks(_Stays, Searcher):
    """Ray Tune's searcher: every suggestion is the next task of a queue."""

    def __init__(self, queue: TaskQueue, errors: CallbackErrors) -> None:
        super().__init__()
        self.queue, self.errors, self.asked = queue, errors, 0
        self.running: dict[str, Task] = {}

    def suggest(self, trial_id: str) -> Any:
        task = None
        with self.errors.collect():
            task = self.queue.next() if self.asked < _PER_EXPERIMENT else None
        if task is None:
            over = self.queue.finished or self.asked >= _PER_EXPERIMENT or self.errors.first
            return Searcher.FINISHED if over else None
        self.asked += 1
        self.running[trial_id] = task
        return {"task": _Sent(task)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        task = self.running.pop(trial_id, None)
        if task is not None:
            with self.errors.collect():
                self.queue.ended(task)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing for Ray to keep: what was asked and how it ended stands in our records."""


class _Worker(tune.Trainable):
    """A process that takes one task after another; each step is a second or so of `run_trial`."""

    _reports: Iterator[Report] | None = None
    rungs: tuple[int, ...] = ()

    def setup(  # type: ignore[override]
        self,
        config: dict[str, Any],
        lab: Lab,
        device: str,
        threads: int,
        worker: WorkerInfo,
        early: Early | None,
    ) -> None:
        torch.set_num_threads(threads)
        self.lab, self.device, self.early = lab, device, early
        self.worker = replace(worker, node=ray.get_runtime_context().get_node_id())
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.task: Task = new_config["task"].task
        self.rungs = self.early.rungs(signature(self.task.spec)) if self.early else ()
        self._reports = self._trial()
        return True

    def _trial(self) -> Iterator[Report]:
        """The task's reports; what no further attempt can mend is the last of them."""
        steps = self.task.spec.train.steps
        aside = Report(self.lab.run_of(self.task.spec).name, "train", 0, steps, float("nan"))
        try:
            worker = replace(self.worker, alive=alive_nodes())
            yield from run_trial(self.lab, self.task, take(self.device), worker)
        except Unavailable as error:
            yield replace(aside, phase=UNAVAILABLE, note=str(error))
        except UserError as error:
            yield replace(aside, phase=MISTAKE, note=str(error))

    def step(self) -> dict[str, Any]:
        assert self._reports is not None
        until, last = time.monotonic() + _SLICE_SECONDS, None
        with awake():
            for report in self._reports:
                last = report
                if time.monotonic() > until or self._judged(report):
                    break
        if last is None:
            return {"done": True}
        result = {"done": last.phase not in UNDER_WAY, **vars(last)}
        if self.early is not None and self._judged(last):
            gap = self.early.gap(last.run, last.step)
            result |= {} if gap is None else {RUNG: last.step, GAP: gap}
        return result

    def _judged(self, report: Report) -> bool:
        """Whether the run is judged at this step."""
        return report.phase == "train" and report.step in self.rungs

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing for Ray to keep: the run's own record is what a restart continues from."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing to do, see `save_checkpoint`."""

    def cleanup(self) -> None:
        if self._reports is not None:
            self._reports.close()  # type: ignore[attr-defined]
            self._reports = None


class _Stop(_Stays, tune.Stopper):
    """Ends all trials, each with a checkpoint, once the flag is up."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.stopping = stopping

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stopping()


class _Watcher(_Stays, tune.Callback):
    """Passes on what trials report, and keeps what the executor must know of them.

    Attributes:
        deferred: tasks that wait for a whole device.
        unavailable: why no task can go on, once that is so.
        errors: what has gone wrong in the driver itself.
    """

    def __init__(
        self,
        lab: Lab,
        on_report: ReportHandler,
        stopping: Callable[[], bool],
        monitor: HeartbeatMonitor,
    ) -> None:
        self.lab, self.on_report, self._asked, self._monitor = lab, on_report, stopping, monitor
        self.deferred: list[Task] = []
        self.unavailable = ""
        self.errors = CallbackErrors()
        self._user_errors: list[str] = []
        self._starts: dict[RunSpec, tuple[int, int]] = {}  # attempts so far, starts without one

    def stopping(self) -> bool:
        """Whether all trials are to end, each with a checkpoint."""
        return bool(self._asked() or self.unavailable or self.errors.first)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._monitor.look()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._monitor.begin(_run(trial))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._monitor.forget(_run(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "phase" not in result:
            return
        report = Report(**{f.name: result[f.name] for f in fields(Report)})
        if report.phase == DEFERRED:
            self.deferred.append(trial.config["task"].task)
        elif report.phase == MISTAKE:
            self._user_errors.append(report.note)
        elif report.phase == UNAVAILABLE:
            self.unavailable = report.note
        else:
            with self.errors.collect():
                self.on_report(report)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Ray will start the task again; what only the driver knows goes into the record."""
        with self.errors.collect():
            self._recover(trial)

    def _recover(self, trial: Any) -> None:
        self._monitor.forget(_run(trial))
        spec = trial.config["task"].task.spec
        error = trial.get_pickled_error() or RuntimeError("the worker died")
        attempts = self.lab.run_of(spec).attempts
        last = next(reversed(attempts.read()), None)
        if last and not last.ended and isinstance(error, ray.exceptions.OutOfMemoryError):
            attempts.close(last, "oom", reason=first_line(error))
        family = (spec, *spec.ancestors)
        tried = sum(len(self.lab.run_of(s).attempts.read()) for s in family)
        before, barren = self._starts.get(spec, (-1, 0))
        self._starts[spec] = (tried, barren + 1 if tried == before else 0)
        if barren >= _BARREN:
            self.unavailable = f"Ray cannot start a worker: {first_line(error)}"

    def settle(self, user_errors: UserErrors) -> None:
        """Why not everything is done, if that is so.

        Raises:
            Unavailable: nothing can go on.
            Interrupted: all were asked to stop.
        """
        for message in self._user_errors:
            user_errors.add(message)
        if self.unavailable:
            raise Unavailable(self.unavailable)
        if self._asked():
            raise Interrupted


def _run(trial: Any) -> str:
    """The name of the run that a trial of Ray works on."""
    return signature(trial.config["task"].task.spec)
