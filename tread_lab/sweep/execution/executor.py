"""Executors: their protocol, the one that runs tasks in this process, and stop signals."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Protocol

import torch

from tread_lab.engine.device import pick
from tread_lab.engine.ranks import OneProcess, Processes
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError, first_line
from tread_lab.sweep.trial.attempt import WorkerInfo
from tread_lab.sweep.trial.task import Task, TaskQueue, as_queue
from tread_lab.sweep.trial.trial import UNDER_WAY, Report, run_trial

ReportHandler = Callable[[Report], None]
_MOST_ATTEMPTS = 50  # of one task in one session; the policy ends a run long before


class Interrupted(Exception):
    """The user or the system asked to stop; running trials have saved a checkpoint."""

    exit_code = 130


class Executor(Protocol):
    """Brings every task to a terminal state.

    A task may be executed more than once; its record ensures that it takes effect once.
    """

    def run(self, lab: Lab, work: Sequence[Task] | TaskQueue, on_report: ReportHandler) -> None:
        """Run the tasks as slots become free, parents before children; call `on_report` with every
        report of theirs.

        Raises:
            Interrupted: SIGINT or SIGTERM came; the running tasks are checkpointed.
            Unavailable: the disk is full or the cluster is lost; nothing is recorded as failed.
            UserError: some tasks lack what only the user can provide; the others are done.
        """


class InlineExecutor:
    """Runs one task after another in this process."""

    def __init__(
        self,
        *,
        device: str | None = None,
        threads: int = 1,
        hang_timeout: float | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.device, self.threads = device, threads
        processes = processes or OneProcess()
        self.worker = WorkerInfo(hang_timeout=hang_timeout, processes=processes)

    def run(self, lab: Lab, work: Sequence[Task] | TaskQueue, on_report: ReportHandler) -> None:
        torch.set_num_threads(self.threads)
        device, queue, user_errors = pick(self.device), as_queue(work), UserErrors()
        with stop_signals() as stopping:

            def watch(report: Report) -> None:
                on_report(report)
                if report.phase in UNDER_WAY and (stopping() or queue.stop):
                    raise Interrupted

            while (task := queue.next()) is not None:
                with user_errors.collect():
                    self._task(lab, task, device, replace(self.worker, stopping=stopping), watch)
                queue.ended(task)
        assert queue.finished
        user_errors.raise_first()

    def _task(
        self, lab: Lab, task: Task, device: torch.device, worker: WorkerInfo, watch: ReportHandler
    ) -> None:
        """Attempt the task until its record says that it has ended."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                with closing(run_trial(lab, task, device, worker)) as reports:  # type: ignore[type-var]
                    for report in reports:
                        watch(report)
                return
            except (UserError, Interrupted):
                raise
            except Exception as error:
                if worker.stopping():
                    raise Interrupted from error
                # As text: the traceback would keep the failed run, and its memory, alive.
                last = f"{type(error).__name__}: {first_line(error)}"
        raise RuntimeError(f"run {task.run}: no attempt comes to an end; the last one: {last}")


class UserErrors:
    """Collects the user errors of single tasks, which do not stop the other tasks."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Collect a user error of the block; `Unavailable` passes, because it stops every task."""
        try:
            yield
        except Unavailable:
            raise
        except UserError as error:
            self.add(str(error))

    def add(self, message: str) -> None:
        self.messages[message] = None

    def raise_first(self) -> None:
        """Raise the first error with the number of further ones; return if there is none."""
        for message in self.messages:
            more = len(self.messages) - 1
            raise UserError(message + (f" (and {more} more like it)" if more else ""))


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within the block SIGINT and SIGTERM only raise a flag; a second one acts as usual.

    Every thread sees the flag at once, also while the main thread waits in foreign code and its
    handlers do not run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    raised: list[int] = []
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    received, arriving = socket.socketpair()

    def note(number: int, frame: FrameType | None) -> None:
        raised.append(number)
        for s, handler in handlers.items():
            signal.signal(s, handler)

    def stopping() -> bool:
        with suppress(OSError):  # no signal came, or the block has ended
            raised.extend(number for number in received.recv(64) if number in handlers)
        return bool(raised)

    with received, arriving:
        received.setblocking(False)
        arriving.setblocking(False)
        for s in handlers:
            signal.signal(s, note)
        earlier = signal.set_wakeup_fd(arriving.fileno(), warn_on_full_buffer=False)
        try:
            yield stopping
        finally:
            signal.set_wakeup_fd(earlier)
            for s, handler in handlers.items():
                signal.signal(s, handler)
