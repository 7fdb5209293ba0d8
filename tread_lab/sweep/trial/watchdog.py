"""Watchdog of a run: ends its own process, and says where it stood, once it makes no progress."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import torch

from tread_lab.specs.errors import Unavailable

FIRST = 1800.0  # seconds until the first progress of a phase: data are opened, kernels compiled
START = 10.0  # times a fixed limit, for the same
LEAST = 600.0  # seconds that are never too long
FACTOR = 50.0  # times the longest pause so far
_EVERY = 0.25  # seconds between two heartbeats
_GRACE = 2.0  # seconds more that the timer in C waits


def first_limit(seconds: float | None) -> float:
    """Return how many seconds of silence are too many at the start of a phase.

    Args:
        seconds: as of a `Watchdog`.
    """
    if seconds is None:
        return FIRST
    return START * seconds or math.inf


class Watchdog:
    """Ends this process when its run makes no progress for too long, whatever holds it up.

    A thread dumps all stacks, says so in one line and exits. Where code holds the interpreter's
    lock, that thread does not run, and a timer in C exits without a word a little later. A process
    that is stopped from outside stops both; a driver on Ray kills it (`ray_callbacks`), any other
    waits until somebody continues it.

    Args:
        dump: the file of the stacks; it stays only if the process was ended.
        heartbeat: a file touched at progress, from which others see its age.
        seconds: the longest silence; `None` to derive it from the run's own pace, 0 for no limit.
    """

    def __init__(self, dump: Path, heartbeat: Path, seconds: float | None) -> None:
        self._seconds, self._dump, self._heartbeat = seconds, dump, heartbeat
        self._file: IO[str] | None = None
        self._due = math.inf
        self._over = threading.Event()

    def __enter__(self) -> Watchdog:
        global _current
        _current = self
        if self._seconds != 0:
            self._dump.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._dump.open("w")
            threading.Thread(target=self._guard, name="watchdog", daemon=True).start()
        self.start_phase()
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = None
        self._over.set()
        self.pause()
        if self._file is not None:
            self._file.close()
            self._file = None
            self._dump.unlink(missing_ok=True)
        self._heartbeat.unlink(missing_ok=True)

    def start_phase(self) -> None:
        """Start a phase, whose first progress may take long."""
        self._longest = 0.0
        self.resume()

    def progress(self) -> None:
        """Note progress; may be called as often as one likes."""
        if self._silence >= _EVERY:
            self._longest = max(self._longest, self._silence)
            self.resume()

    def resume(self) -> None:
        """Count from now on."""
        self._last = time.monotonic()
        self._beat()

    def pause(self) -> None:
        """Stop counting: the work waits for its caller."""
        self._due = math.inf
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()

    @property
    def _silence(self) -> float:
        return time.monotonic() - self._last

    @property
    def _limit(self) -> float:
        """Seconds of silence that are too many."""
        if not self._longest:
            return first_limit(self._seconds)
        return self._seconds or max(LEAST, FACTOR * self._longest)

    def _beat(self) -> None:
        self._heartbeat.touch()
        if self._file is not None:
            self._due = time.monotonic() + self._limit
            faulthandler.dump_traceback_later(self._limit + _GRACE, exit=True, file=self._file)

    def _guard(self) -> None:
        while not self._over.wait(_EVERY):
            if time.monotonic() > self._due:
                assert self._file is not None
                faulthandler.dump_traceback(self._file)
                run, silence = self._dump.parents[1].name, self._silence
                line = (
                    f"\ntread-lab: run {run} made no progress for {silence:.0f} s; it is ended and"
                    f" stood at {self._dump}; the same command goes on\n"
                )
                os.write(2, line.encode())
                os._exit(Unavailable.exit_code)


_current: Watchdog | None = None  # a process has one timer


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Let the watchdog of this process count within the block only."""
    if _current is not None:
        _current.resume()
    try:
        yield
    finally:
        if _current is not None:
            _current.pause()


def longest_silence(seconds: float | None) -> float:
    """Return how many seconds of silence are too many in any phase of what this process does."""
    return max(first_limit(seconds), _current._limit if _current is not None else 0.0)


_HOOK = -1  # torch numbers its own from 0
_after_pass: Callable[[], None]


@contextlib.contextmanager
def every_forward_pass(progress: Callable[[], None]) -> Iterator[None]:
    """Call `progress` at every call of any network within the block, library code included.

    The compiler traces hooks as well, and a graph can hold no look at the clock: what is compiled
    calls nothing, the network around it does. Graphs are made for one hook under one number, so
    both are the same in every evaluation of a process: else each would compile its network anew.
    """
    global _after_pass
    _after_pass = progress
    hooks = torch.nn.modules.module._global_forward_hooks
    hooks[_HOOK] = _passed
    try:
        yield
    finally:
        del hooks[_HOOK]


def _passed(*_: object) -> None:
    if not torch.compiler.is_compiling():
        _after_pass()
