"""The driver's eye on its runs: a process that gives no sign, even to its watchdog, is ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tread_lab.records.attempts import Attempt
from tread_lab.records.durable import write_text
from tread_lab.records.layout import Lab, RunFolder
from tread_lab.sweep.watchdog import Patience

MARGIN = 15.0  # seconds more than the process's own watchdog waits
_EVERY = 1.0  # seconds between two looks


@dataclass
class _Watched:
    patience: Patience
    pulse: float = field(default=0.0)


class Vigil:
    """Which runs are under way, and when each gave its last sign: a report or a touched pulse.

    Args:
        end: kills the process of an attempt, wherever it runs.
        seconds: the longest silence; derived from each run where absent, none with 0.
    """

    def __init__(
        self, lab: Lab, end: Callable[[Attempt], None], seconds: float | None = None
    ) -> None:
        self._lab, self._end, self._seconds = lab, end, seconds
        self._runs: dict[str, _Watched] = {}
        self._looked = time.monotonic()

    def begin(self, run: str) -> None:
        """A run is under way from now on."""
        if self._seconds != 0:
            self._runs[run] = _Watched(Patience(self._seconds))

    def sign(self, run: str) -> None:
        """A run has reported."""
        if run in self._runs:
            self._runs[run].patience.sign()

    def forget(self, run: str) -> None:
        """A run is not under way any more."""
        self._runs.pop(run, None)

    def look(self) -> None:
        """End the processes that have been silent for too long."""
        since = time.monotonic() - self._looked
        if since < _EVERY:
            return
        self._looked = time.monotonic()
        for name, watched in list(self._runs.items()):
            if since > MARGIN / 2:  # this process itself was held up
                watched.patience.resume()
            folder = self._lab.run(name)
            pulse = _modified(folder.pulse)
            if pulse != watched.pulse:
                watched.pulse = pulse
                watched.patience.sign()
            elif watched.patience.silence > watched.patience.limit + MARGIN:
                self._put_down(folder, watched.patience.silence)
                self.begin(name)

    def _put_down(self, folder: RunFolder, silence: float) -> None:
        """Say why where a stack would stand, then kill."""
        attempts = folder.attempts.read()
        if attempts and not attempts[-1].ended:
            last = attempts[-1]
            reason = (
                f"Process {last.pid} on {last.host} gave no sign for {silence:.0f} s, not even to"
                f" its own watchdog: it was stopped or frozen. Its driver ended it.\n"
            )
            write_text(folder.stack_dump(last.n), reason + _kernel_says(last.pid))
            self._end(last)


def _kernel_says(pid: int) -> str:
    """The state of a process as Linux tells it, where it is of this machine."""
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return ""


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
