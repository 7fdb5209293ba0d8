"""A sweep within its budget: what fits is started in order; when the hours are over all stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.time_spent import Stopwatch, seconds_spent
from tread_lab.specs.sweep import BudgetSpec
from tread_lab.sweep.plan.forecast import starts
from tread_lab.sweep.plan.open_tasks import begun_tasks
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.search.queue import TaskQueue
from tread_lab.sweep.trial.task import Task, done_share

Seconds = Callable[[Task], float | None]  # predicted, of what is left of a run


@dataclass(frozen=True)
class Spent:
    """What a sweep has used up: executed training FLOPs, hours of its command, trials started."""

    flops: float
    hours: float
    trials: int


def open_budget(lab: Lab, plan: Plan, seconds: Seconds) -> Budget:
    """What is left of a plan's budget."""
    assert plan.budget is not None
    trials = frozenset(trial.run for trial in plan.possible_trials if trial.role == "trial")
    before = spent(lab, plan.name, begun_tasks(plan, lab), trials)
    return Budget(lab, plan.budget, before, trials, seconds)


def spent(lab: Lab, name: str, tasks: Sequence[Task], trials: frozenset[str]) -> Spent:
    """Read what has been spent on `tasks`, of which `trials` are no baselines."""
    done = {task.run: done_share(lab, task) for task in tasks}
    flops = sum(cost(task.spec).train_flops * done[task.run] for task in tasks)
    started = sum(_started(lab, run, done) for run in trials & done.keys())
    return Spent(flops, seconds_spent(lab.sweep(name).spent_path) / 3600, started)


def _started(lab: Lab, run: str, done: Mapping[str, float]) -> bool:
    """Whether a run has begun; one that ended before its first log entry has only attempts."""
    return done[run] > 0 or bool(lab.run(run).attempts.read())


class Budget:
    """What is left of a budget while a sweep runs.

    A run fits if all that was admitted before it and itself stay within every limit. The first one
    that does not ends the admitting, so that the order of the plan is kept.
    """

    def __init__(
        self, lab: Lab, spec: BudgetSpec, before: Spent, trials: frozenset[str], seconds: Seconds
    ) -> None:
        self.lab, self.spec, self.trials, self.seconds = lab, spec, trials, seconds
        self.before = before
        self.flops, self.count, self.hours = before.flops, before.trials, before.hours

    def fits(self, tasks: Sequence[Task], hours: float) -> bool:
        """Whether these runs fit in, beginning when `hours` of the budget are gone."""
        flops, count = self._price(tasks)
        limits = self.spec
        if limits.flops is not None and self.flops + flops > limits.flops:
            return False
        if limits.trials is not None and self.count + count > limits.trials:
            return False
        if limits.hours is None:
            return True
        longest = max((self.seconds(task) or 0.0 for task in tasks), default=0.0)
        return hours + longest / 3600 <= limits.hours

    def admit(self, task: Task) -> None:
        """Count a run as spent."""
        flops, count = self._price([task])
        self.flops += flops
        self.count += count

    def _price(self, tasks: Sequence[Task]) -> tuple[float, int]:
        """FLOPs still to execute, and trials not yet started."""
        done = {task.run: done_share(self.lab, task) for task in tasks}
        left = sum(cost(t.spec).train_flops * (1 - done[t.run]) for t in tasks)
        mine = self.trials & done.keys()
        return left, sum(not _started(self.lab, run, done) for run in mine)

    def split(self, todo: Sequence[Task], slots: int) -> tuple[list[Task], list[Task]]:
        """What fits of an ordered list on so many slots, and what does not."""
        begins = starts([self.seconds(task) or 0.0 for task in todo], slots)
        for number, (task, begin) in enumerate(zip(todo, begins)):
            if not self.fits([task], self.hours + begin / 3600):
                return list(todo[:number]), list(todo[number:])
            self.admit(task)
        return list(todo), []


class BudgetedQueue:
    """A queue that hands out what fits, and asks for a stop when the hours are over."""

    def __init__(self, queue: TaskQueue, budget: Budget, watch: Stopwatch) -> None:
        self.queue, self.budget, self.watch = queue, budget, watch
        self.closed = False

    @property
    def finished(self) -> bool:
        return self.closed or self.queue.finished

    @property
    def over(self) -> bool:
        return self.queue.over

    @property
    def full(self) -> bool:
        """Whether something was left undone because it does not fit."""
        return self.closed or self.queue.full

    @property
    def stop(self) -> bool:
        self.watch.note()
        limit = self.budget.spec.hours
        over = limit is not None and self.watch.seconds > limit * 3600
        self.closed = self.closed or (over and not self.queue.over)
        return over or self.queue.stop

    def next(self) -> Task | None:
        if self.closed or self.stop:
            return None
        task = self.queue.next()
        if task is None:
            return None
        if not self.budget.fits([task], self.watch.seconds / 3600):
            self.closed = True
            return None
        self.budget.admit(task)
        return task

    def ended(self, task: Task) -> None:
        self.queue.ended(task)

    def close(self) -> None:
        """Write down the time of this session."""
        self.watch.note(now=True)

    @property
    def left(self) -> str:
        """What was not done, for people."""
        return f"{self.queue.left}; the same command with a larger budget goes on"
