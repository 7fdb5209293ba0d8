"""Runners: the protocol, the runner in this process, and the signals that stop either."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import Protocol

import torch

from tread_lab.config.errors import Unavailable, UserError
from tread_lab.records.lab import Lab
from tread_lab.sweep.run_task import QUEUED, UNDER_WAY, AttemptFailed, Report, WorkerInfo, run_task
from tread_lab.sweep.task import Task, TaskQueue
from tread_lab.train.device import pick

ReportHandler = Callable[[Report], None]


class Interrupted(Exception):
    """The user or the system asked to stop; running tasks have saved a checkpoint."""

    exit_code = 130


class Runner(Protocol):
    """Executes all tasks of a queue.

    A task may be executed more than once; its record makes it idempotent.
    """

    def run(self, lab: Lab, queue: TaskQueue, on_report: ReportHandler) -> None:
        """Run the tasks, parents before children; call `on_report` with every report.

        Raises:
            Interrupted: SIGINT, SIGTERM, or the time limit; running tasks have a checkpoint.
            Unavailable: a full disk or a lost cluster; nothing is recorded as failed.
            UserError: some tasks require user action; the others are done.
        """


class InlineRunner:
    """Runs one task after another in this process."""

    def __init__(
        self, *, device: str | None = None, threads: int = 1, worker: WorkerInfo | None = None
    ) -> None:
        self.device, self.threads, self.worker = device, threads, worker or WorkerInfo()

    def run(self, lab: Lab, queue: TaskQueue, on_report: ReportHandler) -> None:
        torch.set_num_threads(self.threads)
        user_errors = UserErrors()
        with stop_signals() as stopping:
            while (task := queue.next()) is not None:
                with user_errors.collect(), closing(self._reports(lab, task)) as reports:
                    for report in reports:
                        on_report(report)
                        if report.phase in UNDER_WAY and (stopping() or queue.stop):
                            raise Interrupted
                queue.ended(task)
        user_errors.raise_first()

    def _reports(self, lab: Lab, task: Task) -> Generator[Report]:
        """Attempt the task until its record says that it has ended."""
        while True:
            try:
                yield from run_task(lab, task, pick(self.device), self.worker)
                return
            except AttemptFailed as failure:
                note = f"{failure}; it starts again"
            yield Report(task.run, QUEUED, 0, task.spec.train.steps, note=note)


class UserErrors:
    """Keeps the first user error of a task, while other tasks continue."""

    first: UserError | None = None

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep a user error of the block; `Unavailable` propagates and stops every task."""
        try:
            yield
        except Unavailable:
            raise
        except UserError as error:
            self.first = self.first or error

    def raise_first(self) -> None:
        """Raise the first error, if any."""
        if self.first is not None:
            raise self.first


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within the block SIGINT and SIGTERM only set a flag; a second signal acts as usual."""
    raised: list[int] = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        raised.append(number)
        restore()

    for number in handlers:
        signal.signal(number, note)
    try:
        yield lambda: bool(raised)
    finally:
        restore()
