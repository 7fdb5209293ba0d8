"""The executor on Ray Tune: reused workers, early stopping, and no state but our own records."""

from __future__ import annotations

import gc
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

from tread_lab.engine.ranks import HereProcesses, OneProcess
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.sweep.execution.early_stopping import GAP, RUNG, EarlyStopping
from tread_lab.sweep.execution.executor import ReportHandler, UserErrors, stop_signals
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.execution.ray_callbacks import CallbackErrors, QueueSearcher, TrialWatcher
from tread_lab.sweep.execution.ray_cluster import cluster, most_on_one_device
from tread_lab.sweep.execution.ray_worker import Worker
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.task import Task, TaskQueue, as_queue

_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # tracebacks of lost workers
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
        resources: TrialResources | None = None,
        *,
        hang_timeout: float | None = None,
        early: EarlyStopping | None = None,
    ) -> None:
        self.resources = resources or TrialResources()
        self.hang_timeout, self.early = hang_timeout, early

    def run(self, lab: Lab, work: Sequence[Task] | TaskQueue, on_report: ReportHandler) -> None:
        os.environ.update({k: v for k, v in _ENVIRONMENT.items() if k not in os.environ})
        user_errors = UserErrors()
        count = self.resources.devices
        processes = OneProcess() if count == 1 else HereProcesses(count)
        with cluster(), stop_signals() as stopping:
            queue = as_queue(work)
            watcher = TrialWatcher(
                lab,
                on_report,
                lambda: stopping() or queue.stop,
                user_errors,
                self.resources,
                self.hang_timeout,
            )
            worker = WorkerInfo(
                runs_per_device=most_on_one_device(self.resources),
                processes=processes,
                hang_timeout=self.hang_timeout,
            )
            while watcher.returned or not queue.finished:
                self._tune(lab, queue, watcher, worker)
                watcher.raise_if_stopped()
                gc.collect()  # an experiment's objects refer to each other
        user_errors.raise_first()

    def _tune(self, lab: Lab, queue: TaskQueue, watcher: TrialWatcher, worker: WorkerInfo) -> None:
        """Carry out the tasks of the queue, or as many as one experiment of Ray Tune may hold."""
        scratch = lab.root / "ray" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        worker = replace(worker, token=scratch / "driver")
        trainable = tune.with_parameters(
            Worker,
            lab=lab,
            device=self.resources.worker_device,
            threads=self.resources.cpus,
            worker=worker,
            early=self.early,
        )
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=QueueSearcher(queue, watcher),
                scheduler=None
                if self.early is None
                else EarlyStoppingScheduler(self.early, watcher.errors),
                num_samples=-1,
                reuse_actors=True,
                max_concurrent_trials=self.resources.concurrent,
            ),
            run_config=tune.RunConfig(
                name=scratch.name,
                storage_path=str(scratch.parent),
                callbacks=[watcher],
                stop=watcher,
                failure_config=tune.FailureConfig(max_failures=-1),  # the record decides
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        try:
            write_text(scratch / "driver", "")
            tuner.fit()
        except tune.TuneError:
            watcher.errors.raise_first()
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        watcher.errors.raise_first()


class EarlyStoppingScheduler(FIFOScheduler):
    """Ray Tune's ASHA, which is shown what earlier sessions saw, and whose verdicts are noted.

    It knows each trial by its run, so that a run that was interrupted goes on as the same trial.
    """

    def __init__(self, early: EarlyStopping, errors: CallbackErrors) -> None:
        super().__init__()
        self.early, self.errors = early, errors
        steps = max(steps for steps, _ in early.judged.values())
        self.rule = ASHAScheduler(
            time_attr=RUNG,
            metric=GAP,
            mode="min",
            max_t=steps,
            grace_period=early.spec.first_rung(steps),
            reduction_factor=early.spec.reduction,
            stop_last_trials=False,
        )
        for run, rung, gap in early.history():
            self.rule.on_trial_add(None, JudgedRun(run))
            self.rule.on_trial_complete(None, JudgedRun(run), {RUNG: rung, GAP: gap})
        for run in early.judged:
            self.rule.on_trial_add(None, JudgedRun(run))

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if GAP not in result:
            return str(self.CONTINUE)
        run = JudgedRun(result["run"])
        decision = str(self.rule.on_trial_result(tune_controller, run, result))
        if decision == self.STOP:
            with self.errors.collect():
                self.early.stop(run.trial_id, result[RUNG], result[GAP])
        return decision


@dataclass(frozen=True)
class JudgedRun:
    """A run as a trial of Ray Tune, as far as a rule must know it."""

    trial_id: str
