"""Requests of people to a run or a sweep, to stop or to continue, a line each."""

from __future__ import annotations

import getpass
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.checksums import NUMBER, Kind, fits
from tread_lab.records.log import append_line, read_lines

REMARKS = "remarks.jsonl"  # in the folder of a run or a sweep
_POLL = 1.0  # seconds between two looks for a request to stop


@dataclass(frozen=True)
class Remark:
    """One line: what was done, by whom and when.

    Attributes:
        event: `stop`.
        text: why to stop.
        by: user and host.
        time: in seconds.
    """

    event: str
    text: str
    by: str
    time: float


_REMARK: Mapping[str, Kind] = {"event": str, "text": str, "by": str, "time": NUMBER}


def is_remark(line: dict[str, Any]) -> bool:
    """Return whether a line is a remark."""
    return fits(line, _REMARK)


@dataclass(frozen=True)
class Remarks:
    """What people have asked of a run or sweep, in the order of asking, by its file `REMARKS`."""

    path: Path

    def read(self) -> list[Remark]:
        """Return all remarks."""
        lines = filter(is_remark, read_lines(self.path))
        return [Remark(**{name: line[name] for name in _REMARK}) for line in lines]

    def add(self, event: str, text: str = "") -> None:
        """Add a remark of the user of this process.

        Raises:
            UserError: the folder cannot be written.
        """
        remark = Remark(event, text, f"{_user()} on {os.uname().nodename}", time.time())
        append_line(self.path, vars(remark))


@contextmanager
def ended_on_request(remarks: Remarks, say: Callable[[str], None]) -> Iterator[None]:
    """Within the block, a request to stop is a SIGTERM to this process, whoever asks and where."""
    earlier, over = len(remarks.read()), threading.Event()

    def watch() -> None:
        while not over.wait(_POLL):
            for remark in remarks.read()[earlier:]:
                if remark.event == "stop":
                    say(f"{remarks.path.parent.name}: {_asked(remark)}")
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    threading.Thread(target=watch, name="stop-request", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _asked(remark: Remark) -> str:
    return f"stopped by {remark.by}" + (f": {remark.text}" if remark.text else "")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without a name for its user
        return f"user {os.getuid()}"
