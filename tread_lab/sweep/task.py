"""Tasks: a run and its evaluations, how much of it is done, and the queues that hand it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from tread_lab.config.decode import settle
from tread_lab.config.evaluation import (
    EvaluationDefaults,
    EvaluationSpec,
    HeldoutSpec,
    SamplesSpec,
    at_steps,
    check_solver,
)
from tread_lab.config.guidance import check_guidance
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature
from tread_lab.records.early_stopping import EarlyStopping, choose
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder, list_checkpoints, step_of
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import Stopwatch


@dataclass(frozen=True)
class Task:
    """A run with its evaluations, whose steps are resolved for this run.

    Attributes:
        defaults: evaluation defaults, stored with a new run.
        rung: evaluation of a rung that ends the task; other evaluations follow in a later task.

    Raises:
        UserError: the run would lack a requirement of an evaluation.
    """

    spec: RunSpec
    evaluations: tuple[EvaluationSpec, ...] = ()
    defaults: EvaluationDefaults = field(default_factory=EvaluationDefaults, compare=False)
    rung: HeldoutSpec | None = None

    def __post_init__(self) -> None:
        settle(self, evaluations=at_steps(self.evaluations, self.spec.train.steps))
        for evaluation in self.evaluations:
            if isinstance(evaluation, SamplesSpec):
                check_solver(self.spec, evaluation.sampler)
                check_guidance(self.spec, evaluation.sampler.guidance)

    @cached_property
    def run(self) -> str:
        """Name of the run, the signature of its spec."""
        return signature(self.spec)

    @property
    def until(self) -> int:
        """The step at which the task ends."""
        step = self.rung.step if self.rung else self.spec.train.steps
        assert isinstance(step, int)
        return step

    @property
    def kept_steps(self) -> tuple[int, ...]:
        """Steps whose checkpoints evaluations require."""
        return tuple(sorted({e.step for e in self.evaluations if isinstance(e.step, int)}))

    def lacking(self, folder: RunFolder) -> tuple[int, ...]:
        """Return past steps of open evaluations without a checkpoint; the run is trained again from
        before the first."""
        if not folder.path.exists() or folder.state() in (RunState.FAILED, RunState.DIVERGED):
            return ()
        kept = {step_of(path) for path in list_checkpoints(folder.checkpoints)}
        asked = {e.step for e in self.evaluations if not folder.evaluation(e).done} - kept
        newest = max(kept, default=0)
        return tuple(sorted(s for s in asked if isinstance(s, int) and s < newest))

    def measurable(self, folder: RunFolder) -> tuple[EvaluationSpec, ...]:
        """Return the possible evaluations of the ended run, at reached steps; at a rung, only the
        rung's evaluation."""
        if self.rung is not None:
            return (self.rung,)
        last = int((folder.result() or {}).get("step", self.spec.train.steps))
        steps = ((spec, spec.step) for spec in self.evaluations)
        return tuple(spec for spec, step in steps if not isinstance(step, int) or step <= last)


def is_complete(lab: Lab, task: Task) -> bool:
    """Return whether the run has ended with every possible evaluation; for a rung, whether the rung
    is evaluated."""
    folder = lab.run(task.run)
    return (folder.result() is not None or task.rung is not None) and is_measured(lab, task)


def is_measured(lab: Lab, task: Task) -> bool:
    """Return whether an ended run, or one at a rung, has every possible evaluation."""
    folder = lab.run(task.run)
    ended = folder.result() or {"state": RunState.COMPLETED}
    return not ended["state"].measurable or all(
        folder.evaluation(spec).done for spec in task.measurable(folder)
    )


def done_share(lab: Lab, task: Task) -> float:
    """Return the executed share of a run's training steps, from 0 to 1."""
    folder = lab.run(task.run)
    if not folder.path.exists():
        return 0.0
    if folder.state() is RunState.COMPLETED:
        return 1.0
    return folder.step() / max(task.spec.train.steps, 1)


def kept_share(lab: Lab, task: Task) -> float:
    """Return the share of a run's training steps that it will not repeat: if no process trains it,
    up to its newest checkpoint."""
    done, folder = done_share(lab, task), lab.run(task.run)
    if done == 0.0 or folder.locked or (done == 1.0 and not task.lacking(folder)):
        return done
    kept = map(step_of, list_checkpoints(folder.checkpoints))
    before = min(task.lacking(folder), default=task.spec.train.steps + 1)
    newest = next((step for step in kept if step < before), 0)
    return min(done, newest / task.spec.train.steps)


def with_ancestors(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks and those of their ancestors, parents first, each run once.

    Parents among `tasks` keep their evaluations; other parents are only trained.
    """
    tasks_by_run = {task.run: task for task in tasks}
    ordered: dict[str, Task] = {}
    for name, task in tasks_by_run.items():
        for parent in task.spec.ancestors:
            parent_name = signature(parent)
            alone = Task(parent, defaults=task.defaults)
            ordered.setdefault(parent_name, tasks_by_run.get(parent_name, alone))
        ordered.setdefault(name, task)
    return tuple(ordered.values())


def failed(lab: Lab, tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks whose run has failed, in order."""
    return [task for task in tasks if lab.run(task.run).state() is RunState.FAILED]


def reopen(lab: Lab, tasks: Iterable[Task]) -> None:
    """Reopen failed runs; attempts are counted per session.

    Raises:
        Busy: another process holds the lock of a run.
    """
    for folder in (lab.run(task.run) for task in tasks):
        with folder.lock():
            folder.reopen()


class TaskQueue(Protocol):
    """Hands out tasks one by one and tracks their ends; for one thread.

    Attributes:
        done: whether all tasks have been handed out and have ended.
        stop: whether running tasks should stop now with a checkpoint.
    """

    @property
    def done(self) -> bool: ...
    @property
    def stop(self) -> bool: ...

    def next(self) -> Task | None:
        """Return a task that can start now, or `None` while all remaining tasks wait."""

    def ended(self, task: Task) -> None:
        """Note the end of a task in this session, with any outcome."""


class ListQueue:
    """Tasks in order, after their parents."""

    stop = False

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._waiting: dict[str, Task] = {}
        self._open: set[str] = set()
        self.add(tasks)

    def add(self, tasks: Sequence[Task]) -> None:
        """Append new tasks."""
        for task in tasks:
            if task.run not in self._open:
                self._waiting[task.run] = task
                self._open.add(task.run)

    @property
    def done(self) -> bool:
        return not self._open

    def next(self) -> Task | None:
        for name, task in self._waiting.items():
            if not self._open & {*map(signature, task.spec.ancestors)}:
                return self._waiting.pop(name)
        return None

    def ended(self, task: Task) -> None:
        self._open.discard(task.run)


class RungQueue:
    """Tasks without early stopping, then cells from rung to rung by `choose`.

    Its state is on record, so later sessions continue equally.

    Args:
        tasks: open tasks.
        whole: task to the end for every run of a cell.
    """

    stop = False

    def __init__(
        self, early: EarlyStopping, tasks: Iterable[Task], whole: Mapping[str, Task]
    ) -> None:
        self._early, self._whole = early, whole
        self._cell_of = {run: n for n, cell in enumerate(early.cells) for run in cell}
        self._queue = ListQueue([task for task in tasks if task.run not in self._cell_of])
        self._standings = [early.standing(cell) for cell in early.cells]
        for number, standing in enumerate(self._standings):
            if standing.begun and not standing.paused:
                self._begin(number, standing.begun)

    @property
    def done(self) -> bool:
        return self._queue.done and self._choice is None

    def next(self) -> Task | None:
        while (task := self._queue.next()) is None and (number := self._choice) is not None:
            self._begin(number, self._standings[number].begun + 1)
        return task

    def ended(self, task: Task) -> None:
        self._queue.ended(task)
        if (number := self._cell_of.get(task.run)) is not None:
            begun = self._standings[number].begun
            found = self._early.standing(self._early.cells[number])
            self._standings[number] = replace(found, begun=max(begun, found.begun))

    @property
    def _choice(self) -> int | None:
        return choose(self._standings, self._early.reduction, quiet=self._queue.done)

    def _begin(self, number: int, part: int) -> None:
        """Queue what a part of a cell, from 1, still lacks."""
        self._standings[number] = replace(self._standings[number], begun=part)
        for run, length in self._early.cells[number].items():
            task = replace(self._whole[run], rung=self._early.probe_at(length, part))
            if not is_complete(self._early.lab, task):
                self._queue.add([task])


class TimedQueue:
    """A queue with a time limit, after which all runs stop.

    Args:
        hours: time limit over all sessions; `None` for no limit.
    """

    def __init__(self, queue: TaskQueue, hours: float | None, watch: Stopwatch) -> None:
        self.queue, self.hours, self.watch = queue, hours, watch

    @property
    def done(self) -> bool:
        return self.queue.done

    @property
    def stop(self) -> bool:
        self.watch.note()
        return self.hours is not None and self.watch.seconds > self.hours * 3600

    def next(self) -> Task | None:
        return None if self.stop else self.queue.next()

    def ended(self, task: Task) -> None:
        self.queue.ended(task)
