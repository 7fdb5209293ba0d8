"""Ray Tune's callbacks in the driver: a searcher that empties a queue, a watcher of its trials."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.tune.search import Searcher

from tread_lab.engine.provenance import decisive, fingerprint, of_nodes
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.errors import Unavailable, first_line
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.execution.executor import Interrupted, ReportHandler, UserErrors
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.execution.ray_cluster import alive_nodes, fitting_nodes, kill_on
from tread_lab.sweep.execution.ray_worker import (
    MISTAKE,
    REFUSED,
    UNAVAILABLE,
    SentTask,
    place,
)
from tread_lab.sweep.trial.attempt import WorkerInfo, unreachable, why_open
from tread_lab.sweep.trial.retry import consequence
from tread_lab.sweep.trial.task import Task, TaskQueue
from tread_lab.sweep.trial.trial import QUEUED, UNDER_WAY, Report
from tread_lab.sweep.trial.watchdog import first_limit

_PER_EXPERIMENT = 200  # tasks; Ray Tune keeps an object for each until the experiment ends
_FRUITLESS_STARTS = 5  # of a worker, after which the cluster is at fault
_LATER = 10.0  # seconds that a watchdog has to end its own process
_MOST_BETWEEN_LOOKS = 5.0  # seconds; the rest this process was itself stopped or held up


class CallbackErrors:
    """Keeps the first exception of the callbacks that Ray Tune calls, to be raised after it.

    Attributes:
        first: what has gone wrong; the trials are to end then.
    """

    first: Exception | None = None

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep what the block raises."""
        try:
            yield
        except Exception as error:
            self.first = self.first or error

    def raise_first(self) -> None:
        """Raise what was kept."""
        if self.first is not None:
            raise self.first


class _InDriver:
    """State of the driver that Ray need not write to disk, and often could not pickle."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class QueueSearcher(_InDriver, Searcher):
    """Ray Tune's searcher: every suggestion is the next task of a queue, or one that came back."""

    def __init__(self, queue: TaskQueue, watcher: TrialWatcher) -> None:
        super().__init__()
        self.queue, self.watcher, self.errors = queue, watcher, watcher.errors
        self.count = 0
        self.running: dict[str, Task] = {}
        self._may_come_back: set[str] = set()  # trials of which nothing was heard yet
        self._found: dict[Any, dict[str, str]] = {}

    def suggest(self, trial_id: str) -> Any:
        task = None
        with self.errors.collect():
            if self.count < _PER_EXPERIMENT:
                returned = self.watcher.returned
                task = returned.pop(0) if returned else self.queue.next()
        if task is None:
            all_out = self.queue.finished and not self._may_come_back
            over = all_out or self.count >= _PER_EXPERIMENT or self.errors.first
            return Searcher.FINISHED if over else None
        self.count += 1
        self.running[trial_id] = task
        self._may_come_back.add(trial_id)
        expected: dict[str, str] = {}
        with self.errors.collect():
            expected = self._expected(task.spec)
        resources, refusing = self.watcher.resources, self.watcher.refusing
        return {"task": SentTask(task, expected, place(resources.of_run, refusing))}

    def _expected(self, spec: RunSpec) -> dict[str, str]:
        """Return what every node must have for a run as this one has it.

        Opening the index of a million files takes seconds, in which the driver does nothing else.
        """
        key = decisive(spec)
        if key not in self._found:
            self._found[key] = of_nodes(fingerprint(spec, "cpu"))
        return self._found[key]

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._may_come_back.discard(trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._may_come_back.discard(trial_id)
        task = self.running.pop(trial_id, None)
        if task is not None and task not in self.watcher.returned:
            with self.errors.collect():
                self.queue.ended(task)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Keep nothing for Ray: our records hold the suggestions and how they ended."""


class TrialWatcher(_InDriver, tune.Callback, tune.Stopper):
    """Passes on what trials report, keeps what the executor must know of them, and stops them all.

    Attributes:
        resources: of a run.
        refusing: nodes that have refused a task since they differ from the driver, and get no more
            of them: id -> why.
        returned: tasks that another node may carry out.
        unavailable: why no task can go on; empty while tasks can.
        errors: exceptions in the driver's own code.
    """

    def __init__(
        self,
        lab: Lab,
        on_report: ReportHandler,
        asked_to_stop: Callable[[], bool],
        user_errors: UserErrors,
        resources: TrialResources,
        hang_timeout: float | None = None,
    ) -> None:
        self.lab, self.on_report, self.user_errors = lab, on_report, user_errors
        self.resources, self._asked_to_stop = resources, asked_to_stop
        self.refusing: dict[str, str] = {}
        self.returned: list[Task] = []
        self.unavailable = ""
        self.errors = CallbackErrors()
        self._starts: dict[str, tuple[int, int]] = {}  # run -> attempts, starts that made none
        self._first_limit = first_limit(hang_timeout)
        self._limits: dict[str, float] = {}  # of runs, the longest silence that they may have
        self._silence: dict[str, float] = {}  # of runs under way, in seconds
        self._looked = time.monotonic()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False  # no trial is stopped alone

    def stop_all(self) -> bool:
        """Return whether all trials are to end, each with a checkpoint."""
        return bool(self._asked_to_stop() or self.unavailable or self.errors.first)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._silence[_task(trial).run] = 0.0
        if "phase" not in result:
            return
        # A node that refuses may have an earlier version, whose results say less.
        self._limits[_task(trial).run] = result.get("limit", self._first_limit)
        report = Report(**{f.name: result[f.name] for f in fields(Report) if f.name in result})
        if result.get("done") and report.phase in UNDER_WAY:  # so a rule of early stopping decided
            report = replace(report, phase=RunState.STOPPED)
        if report.phase == REFUSED:
            self._take_back(_task(trial), result["node"], report)
        elif report.phase == MISTAKE:
            self.user_errors.add(report.note)
        elif report.phase == UNAVAILABLE:
            self.unavailable = report.note
        else:
            with self.errors.collect():
                self.on_report(report)

    def _take_back(self, task: Task, node: str, report: Report) -> None:
        """Let another node carry out the task; say once why this one gets no more."""
        self.returned.append(task)
        if node in self.refusing:
            return
        self.refusing[node] = report.note
        if not fitting_nodes(self.resources) - self.refusing.keys():
            self.unavailable = f"no node can carry out a run: {report.note}"
            return
        note = f"{report.note}; it gets no more runs of this sweep"
        with self.errors.collect():
            self.on_report(replace(report, phase=QUEUED, note=note))

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._silence[_task(trial).run] = 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Kill each worker that is silent for longer than its own watchdog lets it be: it was
        stopped from outside, and its watchdog with it."""
        passed = min(time.monotonic() - self._looked, _MOST_BETWEEN_LOOKS)
        self._looked = time.monotonic()
        for task in [_task(trial) for trial in trials if trial.status == "RUNNING"]:
            run = task.run
            self._silence[run] = silence = self._silence.get(run, 0.0) + passed
            if silence > self._limits.get(run, self._first_limit) + _LATER:
                self._silence[run] = 0.0
                with self.errors.collect():
                    self._end(task, silence)

    def _end(self, task: Task, silence: float) -> None:
        attempts = self._worked_on(task).attempts
        last = next(reversed(attempts.read()), None)
        if last is not None and not last.ended and kill_on(last.node, last.pid):
            reason = f"process {last.pid} on {last.host} said nothing for {silence:.0f} s"
            attempts.close(last, "hung", reason=f"{reason}; its driver has ended it")

    def _worked_on(self, task: Task) -> RunFolder:
        """Return the run that a task's worker trains or measures; a parent comes first."""
        family = [self.lab.run_of(spec) for spec in (*task.spec.ancestors, task.spec)]
        return next((run for run in family if run.result() is None), family[-1])

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Note why a worker has died; Ray starts the task again."""
        with self.errors.collect():
            task, error = _task(trial), _error(trial)
            note = self._lost(task, error)
            self.on_report(Report(task.run, QUEUED, 0, task.spec.train.steps, math.nan, note=note))
            self._count_start(task, error)

    def _lost(self, task: Task, error: Exception) -> str:
        """Return what was lost with a worker, and what follows.

        What only the driver knows is recorded: Ray killed the worker for its memory, or cannot
        reach it, as when the network is cut.
        """
        folder = self._worked_on(task)
        attempts = folder.attempts.read()
        if not attempts or (attempts[-1].ended and not attempts[-1].reason):  # that one ended well
            return f"its worker did not start: {first_line(error)}"
        left = attempts[-1]
        if not left.ended:
            if isinstance(error, ray.exceptions.OutOfMemoryError):
                left = folder.attempts.close(left, "died", reason=first_line(error))
            elif isinstance(error, ray.exceptions.ActorUnavailableError):  # it names an RPC error
                left = folder.attempts.close(left, "lost", reason=unreachable(left))
            else:
                worker = WorkerInfo(driver=left.driver, alive=alive_nodes())
                ended, reason = why_open(folder, left, worker)
                left = replace(left, ended=ended, reason=reason)
        return f"{left.reason}; {consequence([*attempts[:-1], left])}"

    def _count_start(self, task: Task, error: Exception) -> None:
        """Give up on the cluster if starts of a worker keep making no attempt."""
        family = (task.spec, *task.spec.ancestors)
        attempts = sum(len(self.lab.run_of(spec).attempts.read()) for spec in family)
        earlier_attempts, fruitless = self._starts.get(task.run, (-1, 0))
        fruitless = fruitless + 1 if attempts == earlier_attempts else 0
        if fruitless > _FRUITLESS_STARTS:
            self.unavailable = f"Ray cannot start a worker: {first_line(error)}"
        self._starts[task.run] = attempts, fruitless

    def raise_if_stopped(self) -> None:
        """Raise why the tasks cannot go on; return if they can.

        Raises:
            Unavailable: no task can go on.
            Interrupted: all tasks were asked to stop.
        """
        if self.unavailable:
            raise Unavailable(self.unavailable)
        if self._asked_to_stop():
            raise Interrupted


def _error(trial: Any) -> Exception:
    """Return why a worker has died; Ray's own method looks where its file is not yet."""
    path = trial.pickled_error_file
    if path is None or not Path(path).exists():
        return RuntimeError("the worker died")
    error: Exception = cloudpickle.loads(Path(path).read_bytes())
    return error


def _task(trial: Any) -> Task:
    """Return the task that a trial of Ray works on."""
    task: Task = trial.config["task"].task
    return task
