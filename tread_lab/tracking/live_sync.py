"""What a sync did, and the side thread that keeps MLflow up to date while a sweep runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tread_lab.specs.units import counted

if TYPE_CHECKING:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

SLOWEST = 60.0  # seconds between two attempts while the store does not answer


@dataclass(frozen=True)
class SyncReport:
    """What one sync did.

    Attributes:
        runs: rows of the sweep in the store, the sweep's own among them.
        created, updated, removed, unchanged: how many of them; removed ones no longer count in
            `runs`.
        values: metric values sent.
        problems: one line for every run that could not be brought up to date.
    """

    sweep: str
    runs: int = 0
    created: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    values: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        done = f"{self.created} created, {self.updated} updated, {self.unchanged} unchanged"
        gone = f", {self.removed} removed" if self.removed else ""
        text = (
            f"{self.sweep}: {counted(self.runs, 'run')} ({done}{gone}), {self.values} values sent"
        )
        if self.problems:
            text += f"; {len(self.problems)} with problems, the first: {self.problems[0]}"
        return text


class LiveSync:
    """Syncs a sweep every few seconds from a side thread; nothing it meets reaches the training.

    Attributes:
        failed: whether the last attempt failed; the sync that ends a sweep says why.
    """

    def __init__(
        self, tracker: Callable[[], MlflowTracker], sweep_name: str, *, every: float = 5.0
    ) -> None:
        """`tracker` is called by `start`, in the caller's thread: two threads must not import the
        same packages at once.
        """
        self.failed = False
        self._build, self._sweep, self._every = tracker, sweep_name, every
        self._tracker: MlflowTracker | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="live-sync", daemon=True)

    def start(self) -> LiveSync:
        with self._remembered():
            self._tracker = self._build()
        self._thread.start()
        return self

    def stop(self, timeout: float = 60.0) -> None:
        """One last sync, waited for at most `timeout` seconds; never raises."""
        self._leaving.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> LiveSync:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self) -> None:
        pause = self._every
        while not self._leaving.wait(pause):
            took = self._attempt(closing=False)
            if self.failed:
                pause = min(2 * pause, max(self._every, SLOWEST))
            else:
                pause = max(self._every, 4 * took)  # at most a fifth of the thread's time
        self._attempt(closing=True)

    def _attempt(self, *, closing: bool) -> float:
        """Sync once; returns the seconds it took."""
        started = time.monotonic()
        with self._remembered():
            self._tracker = self._tracker or self._build()
            self._tracker.sync(self._sweep, closing=closing)
        return time.monotonic() - started

    @contextlib.contextmanager
    def _remembered(self) -> Iterator[None]:
        """Remember whether the block fails; whatever it is, the training must not notice."""
        try:
            yield
            self.failed = False
        except Exception:
            self.failed = True
