"""How long the sessions of a sweep have run: append-only, so that a killed one counts too."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from tread_lab.records.lines import append_line, read_lines

_EVERY = 15.0  # seconds between two entries; what a kill can lose


def seconds_spent(path: Path) -> float:
    """Return the seconds of all sessions so far."""
    sessions: dict[str, float] = {}
    for tree in read_lines(path):
        if {"session", "seconds"} <= tree.keys():
            name = str(tree["session"])
            sessions[name] = max(sessions.get(name, 0.0), float(tree["seconds"]))
    return sum(sessions.values())


class Stopwatch:
    """Measures this session and records it every few seconds; earlier sessions are added."""

    def __init__(self, path: Path) -> None:
        self.path, self.earlier = path, seconds_spent(path)
        self._session, self._started = uuid.uuid4().hex[:8], time.monotonic()
        self._written = 0.0

    @property
    def seconds(self) -> float:
        """The seconds of all sessions, this one included."""
        return self.earlier + time.monotonic() - self._started

    def note(self, *, now: bool = False) -> None:
        """Record the time, if the last entry is old or `now` is set."""
        seconds = time.monotonic() - self._started
        if now or seconds - self._written > _EVERY:
            self._written = seconds
            append_line(self.path, {"session": self._session, "seconds": round(seconds, 1)})
