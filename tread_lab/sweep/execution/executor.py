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
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError, first_line
from tread_lab.sweep.search.queue import Feed, as_feed
from tread_lab.sweep.trial.attempt import Place
from tread_lab.sweep.trial.trial import UNDER_WAY, Report, Task, run_trial

Watch = Callable[[Report], None]
_MOST_ATTEMPTS = 50  # of one task in one session; the policy ends a run long before


class Interrupted(Exception):
    """The user or the system asked to stop; running trials have saved a checkpoint."""


class Executor(Protocol):
    """Brings every task to a terminal state; tasks are at-least-once, records make them once."""

    def run(self, lab: Lab, work: Sequence[Task] | Feed, watch: Watch) -> None:
        """Carry out a list of tasks, or what a feed hands out, as places become free, reporting to
        `watch`; no task before those it starts from.

        Raises:
            Interrupted: SIGINT or SIGTERM came; the running tasks are checkpointed.
            Unavailable: the disk is full or the cluster is lost; nothing is recorded as failed.
            UserError: some tasks lack what only the user can provide; the others are done.
        """
        ...


class InlineExecutor:
    """One task after another in this process."""

    def __init__(
        self, *, device: str | None = None, threads: int = 1, hang_timeout: float | None = None
    ) -> None:
        self.device, self.threads = device, threads
        self.place = Place(hang_timeout=hang_timeout)

    def run(self, lab: Lab, work: Sequence[Task] | Feed, watch: Watch) -> None:
        torch.set_num_threads(self.threads)
        device, feed, mistakes = pick(self.device), as_feed(work), Mistakes()
        with stop_signals() as stopping:
            while (task := feed.next()) is not None:
                with mistakes.kept():
                    self._task(lab, task, device, watch, lambda: stopping() or feed.stop)
                feed.ended(task)
        assert feed.finished
        mistakes.settle()

    def _task(
        self,
        lab: Lab,
        task: Task,
        device: torch.device,
        watch: Watch,
        stopping: Callable[[], bool],
    ) -> None:
        """Attempt the task until its record says that it has ended."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                with closing(run_trial(lab, task, device, self.place)) as reports:  # type: ignore[type-var]
                    for report in reports:
                        watch(report)
                        if report.phase in UNDER_WAY and stopping():
                            raise Interrupted
                return
            except (UserError, Interrupted):
                raise
            except Exception as error:
                # As text: the traceback would keep the failed run, and its memory, alive.
                last = f"{type(error).__name__}: {first_line(error)}"
        name = task.run
        raise RuntimeError(f"run {name}: no attempt comes to an end; the last one: {last}")


class Mistakes:
    """The mistakes of single tasks: the others go on, and the user hears of them at the end."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the block's mistake; what stops every task passes."""
        try:
            yield
        except Unavailable:
            raise
        except UserError as mistake:
            self.add(str(mistake))

    def add(self, message: str) -> None:
        self.messages[message] = None

    def settle(self) -> None:
        """Raise the first one, with the number of further ones."""
        for message in self.messages:
            more = len(self.messages) - 1
            raise UserError(message + (f" (and {more} more like it)" if more else ""))


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
