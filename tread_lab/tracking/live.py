"""Follows a sweep while it runs: a tracker is brought up to date from a side thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from tread_lab.config.errors import first_line

EVERY = 5.0  # seconds between two syncs
LAST = 60.0  # seconds that the last one may take


class Tracker(Protocol):
    """Shows what is on record of a sweep."""

    def sync(self, sweep: str) -> object: ...


@contextlib.contextmanager
def following(
    tracker: Tracker, sweep: str, failed: Callable[[str], object] = lambda line: None
) -> Iterator[None]:
    """Sync a sweep every few seconds within a block and once at its end.

    Whatever fails there reaches no training; a later sync makes up for it.

    Args:
        failed: is called with the error of the last sync.
    """
    leaving, problems = threading.Event(), list[str]()

    def watch() -> None:
        pause, last = EVERY, False
        while not last:
            last = leaving.wait(pause)
            started = time.monotonic()
            problems.clear()
            try:
                tracker.sync(sweep)
            except Exception as error:
                problems.append(first_line(error))
            pause = max(EVERY, 4 * (time.monotonic() - started))  # a fifth of the thread's time

    thread = threading.Thread(target=watch, name="tracker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join(LAST)
        for problem in problems:
            failed(problem)
