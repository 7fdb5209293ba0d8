"""Driver-side heartbeat monitor: kills a worker whose own watchdog has gone silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tread_lab.records.attempts import Attempt
from tread_lab.records.durable import modified, read_json, write_text
from tread_lab.records.lab import Lab, RunFolder

MARGIN = 15.0  # seconds more than the process's own watchdog waits
_EVERY = 1.0  # seconds between two looks


@dataclass
class _Heartbeat:
    """The last heartbeat of a running attempt, as this driver has seen it."""

    seen: float  # when it last changed, or when this driver could first look again
    modified: float = 0.0
    limit: float | None = None  # seconds of silence that its process allows itself
    killed: int = 0  # number of the attempt that was killed


class HeartbeatMonitor:
    """Watches the heartbeat files of the running runs; each holds the seconds its watchdog waits.

    Args:
        kill: kills the process of an attempt, wherever it runs.
    """

    def __init__(self, lab: Lab, kill: Callable[[Attempt], None]) -> None:
        self._lab, self._kill = lab, kill
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._looked = time.monotonic()

    def begin(self, run: str) -> None:
        """Start to watch a run."""
        self._heartbeats[run] = _Heartbeat(time.monotonic())

    def forget(self, run: str) -> None:
        """Stop watching a run."""
        self._heartbeats.pop(run, None)

    def look(self) -> None:
        """Kill the processes that have been silent for longer than they should be able to."""
        now = time.monotonic()
        pause = now - self._looked
        if pause < _EVERY:
            return
        self._looked = now
        for name, heartbeat in self._heartbeats.items():
            folder = self._lab.run(name)
            last_change = modified(folder.heartbeat_path) or 0.0
            if last_change != heartbeat.modified or pause > MARGIN / 2:  # this process was held up
                heartbeat.seen, heartbeat.modified = now, last_change
                heartbeat.limit = read_json(folder.heartbeat_path) or heartbeat.limit
            elif heartbeat.limit and now - heartbeat.seen > heartbeat.limit + MARGIN:
                self._kill_silent(folder, heartbeat)

    def _kill_silent(self, folder: RunFolder, heartbeat: _Heartbeat) -> None:
        """Kill the process of the open attempt, and say why in the file of its stacks."""
        last = next(reversed(folder.attempts.read()), None)
        if last is None or last.ended or last.n == heartbeat.killed:
            return
        reason = (
            f"Process {last.pid} on {last.host} gave no sign for"
            f" {time.monotonic() - heartbeat.seen:.0f} s, not even to its own watchdog:"
            " it was stopped or frozen. Its driver ended it.\n"
        )
        with suppress(OSError):  # Linux tells the state of a process of this machine
            reason += Path(f"/proc/{last.pid}/status").read_text(encoding="utf-8")
        write_text(folder.stack_dump(last.n), reason)
        heartbeat.killed = last.n
        self._kill(last)
