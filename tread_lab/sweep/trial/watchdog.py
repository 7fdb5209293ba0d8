"""Ends the process of a run that makes no progress, with a dump of where every thread stood."""

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

FIRST = 1800.0  # seconds for the first sign of a phase: data are opened, kernels compiled
START = 10.0  # times a fixed limit, for the same
LEAST = 600.0  # seconds that are never too long
FACTOR = 50.0  # times the longest pause so far
_EVERY = 0.25  # seconds between two signs that are worth noting
_GRACE = 2.0  # seconds more that the thread of C waits


class Patience:
    """How long a silence may last: a fixed time, or so many times the longest one before.

    Args:
        seconds: the fixed time; derived from the signs so far where absent.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.fixed, self._longest, self._last = seconds, 0.0, 0.0
        self.anew()

    def anew(self) -> None:
        """Another phase begins, whose first sign may take long."""
        self._longest, self._last = 0.0, time.monotonic()

    def sign(self) -> None:
        """There was progress."""
        now = time.monotonic()
        self._longest, self._last = max(self._longest, now - self._last), now

    def resume(self) -> None:
        """Nobody could have seen progress until now."""
        self._last = time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the last sign."""
        return time.monotonic() - self._last

    @property
    def limit(self) -> float:
        """Seconds of silence that are too many."""
        if self.fixed is not None:
            return self.fixed if self._longest else START * self.fixed
        return max(LEAST, FACTOR * self._longest) if self._longest else FIRST


class Watchdog:
    """Ends this process when the run it works on is silent for too long, whatever holds it up.

    A thread says so in one line and does it. If even that thread does not get its turn, because
    code holds the interpreter's lock, one of C does it without a word, a little later. A process
    that is stopped from outside stops them with it; the driver sees that nothing comes.

    Args:
        dump: gets the stacks of all threads; there only if it came to that.
        heartbeat: a file touched at signs of life, for those who look from elsewhere; it says how
            many seconds of silence may follow.
        seconds: the longest silence; derived from the run where absent, none with 0.
    """

    def __init__(self, dump: Path, heartbeat: Path, seconds: float | None) -> None:
        self.patience = Patience(seconds or None)
        self._on, self._dump, self._heartbeat = seconds != 0, dump, heartbeat
        self._file: IO[str] | None = None
        self._told = 0.0
        self._due = math.inf
        self._over = threading.Event()

    def __enter__(self) -> Watchdog:
        global _current
        _current = self
        if self._on:
            self._dump.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._dump.open("w")
            threading.Thread(target=self._guard, name="watchdog", daemon=True).start()
        self.anew()
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = None
        self._over.set()
        self.rest()
        if self._file is not None:
            self._file.close()
            self._file = None
            self._dump.unlink(missing_ok=True)
        self._heartbeat.unlink(missing_ok=True)

    def anew(self) -> None:
        """Another phase of the work begins."""
        self.patience.anew()
        self._count()

    def sign(self) -> None:
        """The work goes on; may be called as often as one likes."""
        if self.patience.silence >= _EVERY:
            self.patience.sign()
            self._count()

    def wake(self) -> None:
        """Count from now on."""
        self.patience.resume()
        self._count()

    def rest(self) -> None:
        """Do not count: the work waits for whoever asked for it."""
        self._due = math.inf
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()

    def _count(self) -> None:
        if self._file is None:
            self._heartbeat.touch()
            return
        limit = self.patience.limit
        if limit == self._told:
            self._heartbeat.touch()
        else:
            self._heartbeat.write_text(f"{limit:.3f}\n", encoding="utf-8")
            self._told = limit
        self._due = time.monotonic() + limit
        faulthandler.dump_traceback_later(limit + _GRACE, exit=True, file=self._file)

    def _guard(self) -> None:
        while not self._over.wait(_EVERY):
            if time.monotonic() > self._due:
                assert self._file is not None
                faulthandler.dump_traceback(self._file)
                run, silence = self._dump.parents[1].name, self.patience.silence
                say = f"run {run} made no progress for {silence:.0f} s; it is ended and stood at"
                line = f"\ntread-lab: {say} {self._dump}; the same command goes on\n"
                os.write(2, line.encode())
                os._exit(Unavailable.exit_code)


_current: Watchdog | None = None  # a process has one timer


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """The watchdog of this process counts within the block only."""
    if _current is not None:
        _current.wake()
    try:
        yield
    finally:
        if _current is not None:
            _current.rest()


@contextlib.contextmanager
def every_forward_pass(sign: Callable[[], None]) -> Iterator[None]:
    """Within the block every call of any network is a sign of life, library code included."""
    modules = torch.nn.modules.module
    hook = modules.register_module_forward_hook(lambda *_: sign())
    try:
        yield
    finally:
        hook.remove()
