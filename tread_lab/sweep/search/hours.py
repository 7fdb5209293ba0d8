"""The hours of a sweep: a queue that stops all runs, with checkpoints, once they are over."""

from __future__ import annotations

from tread_lab.records.sweep_folder import Stopwatch
from tread_lab.sweep.trial.task import Task, TaskQueue


class TimedQueue:
    """A queue that hands out nothing more and stops all runs after so many hours.

    Args:
        hours: that the command may run, all sessions together; `None` for no limit.

    Attributes:
        closed: whether the hours are over and something is left.
    """

    def __init__(self, queue: TaskQueue, hours: float | None, watch: Stopwatch) -> None:
        self.queue, self.hours, self.watch = queue, hours, watch
        self.closed = False

    @property
    def finished(self) -> bool:
        return self.closed or self.queue.finished

    @property
    def over(self) -> bool:
        return self.queue.over

    @property
    def stop(self) -> bool:
        self.watch.note()
        over = self.hours is not None and self.watch.seconds > self.hours * 3600
        self.closed = self.closed or (over and not self.queue.over)
        return over or self.queue.stop

    def next(self) -> Task | None:
        return None if self.closed or self.stop else self.queue.next()

    def ended(self, task: Task) -> None:
        self.queue.ended(task)

    def close(self) -> None:
        """Record the time of this session."""
        self.watch.note(now=True)

    @property
    def left(self) -> str:
        return f"{self.queue.left}; the same command with more hours continues"
