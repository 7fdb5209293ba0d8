"""The budget of a sweep: a queue starts what fits in order, and stops all after the hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tread_lab.engine.cost.training import cost, executed_flops
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Stopwatch, seconds_spent
from tread_lab.sweep.plan.forecast import starts
from tread_lab.sweep.plan.plan import Plan, started_tasks
from tread_lab.sweep.trial.task import Task, TaskQueue, done_share

Seconds = Callable[[Task], float | None]  # predicted, of what is left of a run


@dataclass(frozen=True)
class Spent:
    """What a sweep has used up: executed training FLOPs, hours of its command, trials started."""

    flops: float
    hours: float
    trials: int


class Budget:
    """What is left of a plan's budget while its sweep runs.

    A run fits if it and all runs admitted before it stay within every limit of which it takes some.

    Args:
        seconds: the forecast of what is left of runs.
    """

    def __init__(self, lab: Lab, plan: Plan, seconds: Seconds) -> None:
        assert plan.budget is not None
        self.lab, self.spec, self.seconds = lab, plan.budget, seconds
        trials = [trial for trial in plan.possible_trials if trial.role == "trial"]
        baselines = {trial.baseline for trial in trials}  # at rate 0 a trial's own run
        self._trials = frozenset(trial.run for trial in trials if trial.run not in baselines)
        self._admitted: set[str] = set()  # runs that are counted to their end
        tasks = started_tasks(plan, lab)
        self.spent = Spent(  # by earlier sessions
            flops=sum(map(self._executed, tasks)),
            hours=seconds_spent(lab.sweep(plan.name).spent_path) / 3600,
            trials=sum(task.run in self._trials and self._has_begun(task) for task in tasks),
        )
        self.flops, self.count = self.spent.flops, self.spent.trials  # with what was admitted

    def _executed(self, task: Task) -> int:
        """Return the FLOPs of the steps that a run has executed."""
        steps = done_share(self.lab, task) * task.spec.train.steps
        return executed_flops(task.spec, round(steps))

    def _has_begun(self, task: Task) -> bool:
        """Return whether a run has begun; one that failed before a log entry has attempts."""
        return bool(self.lab.run(task.run).attempts.read()) or done_share(self.lab, task) > 0

    def fits(self, task: Task, hours: float) -> bool:
        """Return whether a task fits if it begins when `hours` of the budget are gone."""
        flops, count = self._cost(task)
        left = hours + (self.seconds(task) or 0.0) / 3600
        limits = self.spec.flops, self.spec.trials, self.spec.hours
        parts = zip(limits, (self.flops, self.count, 0.0), (flops, count, left))
        return all(limit is None or not new or old + new <= limit for limit, old, new in parts)

    def admit(self, task: Task) -> None:
        """Count a task to its end."""
        self._count(task, 1)
        self._admitted.add(task.run)

    def ended(self, task: Task) -> None:
        """Count of a run no more than it has executed."""
        if task.run in self._admitted:
            self._admitted.remove(task.run)
            self._count(task, -1)

    def _count(self, task: Task, sign: int) -> None:
        flops, count = self._cost(task)
        self.flops += sign * flops
        self.count += sign * count

    def _cost(self, task: Task) -> tuple[float, int]:
        """Return the FLOPs that a task has still to execute, and whether it starts a trial; of one
        that is admitted both count already."""
        if task.run in self._admitted:
            return 0.0, 0
        flops = cost(task.spec).train_flops - self._executed(task)
        return flops, int(task.run in self._trials and not self._has_begun(task))

    def split(self, todo: Sequence[Task], slots: int) -> tuple[list[Task], list[Task]]:
        """Split an ordered list at the first task that does not fit on so many slots."""
        begins = starts([self.seconds(task) or 0.0 for task in todo], slots)
        for number, (task, begin) in enumerate(zip(todo, begins)):
            if not self.fits(task, self.spent.hours + begin / 3600):
                return list(todo[:number]), list(todo[number:])
            self.admit(task)
        return list(todo), []


class BudgetedQueue:
    """A queue that hands out what fits a budget, and stops all when the hours are over.

    The first task that does not fit closes the queue, so that the order of the plan is kept. Before
    that it waits for the running ones, which may end early and leave room.

    Attributes:
        closed: whether something is left that the budget does not allow.
    """

    def __init__(self, queue: TaskQueue, budget: Budget, watch: Stopwatch) -> None:
        self.queue, self.budget, self.watch = queue, budget, watch
        self.closed = False
        self._waiting: Task | None = None  # for room
        self._running: set[str] = set()

    @property
    def finished(self) -> bool:
        return self.closed or (self._waiting is None and self.queue.finished)

    @property
    def over(self) -> bool:
        return self.queue.over

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
        task = self._waiting or self.queue.next()
        if task is None:
            return None
        if not self.budget.fits(task, self.watch.seconds / 3600):
            self._waiting, self.closed = task, not self._running
            return None
        self._waiting = None
        self.budget.admit(task)
        self._running.add(task.run)
        return task

    def ended(self, task: Task) -> None:
        self._running.discard(task.run)
        self.budget.ended(task)
        self.queue.ended(task)

    def close(self) -> None:
        """Record the time of this session."""
        self.watch.note(now=True)

    @property
    def left(self) -> str:
        return f"{self.queue.left}; the same command with a larger budget goes on"
