"""What carries tasks out: the protocol of an executor, and the one that needs no Ray."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import Protocol

import torch

from tread_lab.engine.device import pick
from tread_lab.records.layout import Lab
from tread_lab.spec.errors import UserError
from tread_lab.sweep.feed import Feed, as_feed
from tread_lab.sweep.trial import Report, Task, record_failure, run_trial

Watch = Callable[[Report], None]


class Interrupted(Exception):
    """The user or the system asked to stop; running trials have saved a checkpoint."""


class Executor(Protocol):
    """Brings every task to a terminal state; tasks are at-least-once, records make them once."""

    def run(self, lab: Lab, work: Sequence[Task] | Feed, watch: Watch) -> None:
        """Carry out a list of tasks, or what a feed hands out, as places become free, reporting to
        `watch`; no task before those it starts from.

        Raises:
            Interrupted: SIGINT or SIGTERM came; the running tasks are checkpointed.
        """
        ...


class InlineExecutor:
    """One task after another in this process."""

    def __init__(self, *, device: str | None = None, threads: int = 1, tries: int = 2) -> None:
        self.device, self.threads, self.tries = device, threads, tries

    def run(self, lab: Lab, work: Sequence[Task] | Feed, watch: Watch) -> None:
        torch.set_num_threads(self.threads)
        device, feed = pick(self.device), as_feed(work)
        with stop_signals() as stopping:
            while (task := feed.next()) is not None:
                self._task(lab, task, device, watch, stopping)
                feed.ended(task)
        assert feed.finished

    def _task(
        self,
        lab: Lab,
        task: Task,
        device: torch.device,
        watch: Watch,
        stopping: Callable[[], bool],
    ) -> None:
        for attempt in range(1, self.tries + 1):
            try:
                with closing(run_trial(lab, task, device)) as reports:  # type: ignore[type-var]
                    for report in reports:
                        watch(report)
                        if stopping():
                            raise Interrupted
                return
            except (UserError, Interrupted):
                raise
            except Exception as error:
                if attempt == self.tries:
                    folder = lab.run_of(task.spec)
                    record_failure(folder, error, "exception")
                    watch(Report(folder.name, "failed", 0, task.spec.train.steps, float("nan")))


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Within the block SIGINT and SIGTERM only raise a flag; a second one acts as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    raised: list[int] = []
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        raised.append(number)
        for s, handler in before.items():
            signal.signal(s, handler)

    for s in before:
        signal.signal(s, note)
    try:
        yield lambda: bool(raised)
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
