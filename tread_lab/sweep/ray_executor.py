"""The executor on Ray Tune: reused workers, our records as the only state that counts."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.search import Searcher

from tread_lab.engine.device import pick
from tread_lab.records.layout import Lab
from tread_lab.spec.errors import UserError
from tread_lab.spec.signature import signature
from tread_lab.sweep.execute import Interrupted, Watch, stop_signals
from tread_lab.sweep.feed import Feed, as_feed
from tread_lab.sweep.trial import Report, Task, record_failure, run_trial

_SLICE_SECONDS = 1.0  # how long a worker trains between two reports
_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
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
        tries: int = 2,
    ) -> None:
        self.device, self.cpus, self.gpus = device, cpus, gpus
        self.concurrent, self.tries = concurrent, tries

    def run(self, lab: Lab, work: Sequence[Task] | Feed, watch: Watch) -> None:
        os.environ.update({k: v for k, v in _QUIET.items() if k not in os.environ})
        with _ray(), stop_signals() as stopping:
            self._tune(lab, as_feed(work), _Watcher(lab, watch), _Stop(stopping))
            if stopping():
                raise Interrupted

    def _tune(self, lab: Lab, feed: Feed, watcher: _Watcher, stop: tune.Stopper) -> None:
        scratch = lab.root / "ray" / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
        need = {"cpu": self.cpus, "gpu": self.gpus}
        trainable = tune.with_parameters(
            _Worker, lab=lab, device=self.device, threads=int(self.cpus) or 1
        )
        tuner = tune.Tuner(
            tune.with_resources(trainable, need),
            tune_config=tune.TuneConfig(
                search_alg=_Asks(feed),
                num_samples=-1,
                reuse_actors=True,
                max_concurrent_trials=self.concurrent,
            ),
            run_config=tune.RunConfig(
                name=scratch.name,
                storage_path=str(scratch.parent),
                callbacks=[watcher],
                stop=stop,
                failure_config=tune.FailureConfig(max_failures=self.tries - 1),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        try:
            tuner.fit()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        watcher.settle()


@dataclass(frozen=True, repr=False)
class _Sent:
    """A task on its way to a worker; Ray names trials by the text of their configuration."""

    task: Task

    def __str__(self) -> str:
        return signature(self.task.spec)


class _Asks(Searcher):
    """Ray Tune's searcher: every suggestion is the next task of a feed."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self.feed = feed
        self.running: dict[str, Task] = {}

    def suggest(self, trial_id: str) -> Any:
        task = self.feed.next()
        if task is None:
            return Searcher.FINISHED if self.feed.finished else None
        self.running[trial_id] = task
        return {"task": _Sent(task)}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        task = self.running.pop(trial_id, None)
        if task is not None:
            self.feed.ended(task)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Nothing for Ray to keep: what was asked and how it ended stands in our records."""


class _Worker(tune.Trainable):
    """A process that takes one task after another; each step is a second or so of `run_trial`."""

    _reports: Iterator[Report] | None = None

    def setup(  # type: ignore[override]
        self,
        config: dict[str, Any],
        lab: Lab,
        device: str | None,
        threads: int,
    ) -> None:
        torch.set_num_threads(threads)
        self.lab, self.device = lab, pick(device)
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.cleanup()
        self.task: Task = new_config["task"].task
        self._reports = iter(run_trial(self.lab, self.task, self.device))
        return True

    def step(self) -> dict[str, Any]:
        assert self._reports is not None
        until, last = time.monotonic() + _SLICE_SECONDS, None
        for report in self._reports:
            last = report
            if time.monotonic() > until:
                break
        if last is None:
            return {"done": True}
        return {"done": last.phase not in ("train", "evaluate"), **vars(last)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing for Ray to keep: the run's own record is what a restart continues from."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
        """Nothing to do, see `save_checkpoint`."""

    def cleanup(self) -> None:
        if self._reports is not None:
            self._reports.close()  # type: ignore[attr-defined]
            self._reports = None


class _Stop(tune.Stopper):
    """Ends all trials, each with a checkpoint, once the flag is up."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self.stopping = stopping

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.stopping()


class _Watcher(tune.Callback):
    """Passes on what trials report, and records those that Ray has given up."""

    def __init__(self, lab: Lab, watch: Watch) -> None:
        self.lab, self.watch = lab, watch
        self.failed: list[str] = []

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "phase" in result:
            self.watch(Report(**{f.name: result[f.name] for f in fields(Report)}))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        error = trial.get_pickled_error() or RuntimeError("the worker died")
        task: Task = trial.config["task"].task
        folder = self.lab.run_of(task.spec)
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, UserError):
            self.failed.append(str(cause))
        if folder.result() is None:
            record_failure(folder, cause, "exception")
        self.watch(Report(folder.name, "failed", 0, task.spec.train.steps, float("nan")))

    def settle(self) -> None:
        """A user's mistake inside a worker is the user's message here."""
        for message in self.failed:
            raise UserError(message)


@contextmanager
def _ray() -> Iterator[None]:
    """Ray for the block: the cluster at RAY_ADDRESS, else workers of this machine."""
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    # Ray's sockets need a short path, so this is not below the lab.
    scratch = None if address else tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    local: dict[str, Any] = {} if address else {"include_dashboard": False, "_temp_dir": scratch}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
        yield
    finally:
        ray.shutdown()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
