"""Driver-side heartbeat monitor: kills a worker whose own watchdog has gone silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tread_lab.records.attempts import Attempt
from tread_lab.records.durable import modified, write_text
from tread_lab.records.lab import Lab, RunFolder

MARGIN = 15.0  # seconds more than the process's own watchdog waits
_EVERY = 1.0  # seconds between two looks


@dataclass
class _Watched:
    """A running attempt: the last time of its heartbeat, and since when that has not changed."""

    since: float
    touched: float = 0.0
    limit: float | None = None  # seconds of silence that its process allows itself
    ended: int = 0  # the attempt that was put down


class HeartbeatMonitor:
    """Watches the heartbeat files of the running runs; each holds the seconds its watchdog waits.

    Args:
        end: kills the process of an attempt, wherever it runs.
    """

    def __init__(self, lab: Lab, end: Callable[[Attempt], None]) -> None:
        self._lab, self._end = lab, end
        self._runs: dict[str, _Watched] = {}
        self._looked = time.monotonic()

    def begin(self, run: str) -> None:
        """A run is under way from now on."""
        self._runs[run] = _Watched(time.monotonic())

    def forget(self, run: str) -> None:
        """A run is not under way any more."""
        self._runs.pop(run, None)

    def look(self) -> None:
        """End the processes that have been silent for longer than they should be able to."""
        now = time.monotonic()
        pause, held_up = now - self._looked, now - self._looked > MARGIN / 2
        if pause < _EVERY:
            return
        self._looked = now
        for name, watched in self._runs.items():
            folder = self._lab.run(name)
            touched = modified(folder.heartbeat_path) or 0.0
            if touched != watched.touched or held_up:  # or this process could not look
                watched.since, watched.touched = now, touched
                watched.limit = _number(folder.heartbeat_path) or watched.limit
            elif watched.limit and now - watched.since > watched.limit + MARGIN:
                self._put_down(folder, watched)

    def _put_down(self, folder: RunFolder, watched: _Watched) -> None:
        """Say why where a stack would stand, then kill."""
        last = next(reversed(folder.attempts.read()), None)
        if last is None or last.ended or last.n == watched.ended:
            return
        reason = (
            f"Process {last.pid} on {last.host} gave no sign for"
            f" {time.monotonic() - watched.since:.0f} s, not even to its own watchdog:"
            " it was stopped or frozen. Its driver ended it.\n"
        )
        write_text(folder.stack_dump(last.n), reason + _kernel_says(last.pid))
        watched.ended = last.n
        self._end(last)


def _kernel_says(pid: int) -> str:
    """The state of a process as Linux tells it, where it is of this machine."""
    try:
        return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
