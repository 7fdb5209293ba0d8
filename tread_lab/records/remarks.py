"""Remarks of people on a run or a sweep: notes, tags, and requests to stop, a line each."""

from __future__ import annotations

import getpass
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.checksums import NUMBER, Kind, fits
from tread_lab.records.log import append_line, read_lines
from tread_lab.specs.errors import UserError, suggest

REMARKS = "remarks.jsonl"  # in the folder of a run or a sweep
_POLL = 1.0  # seconds between two looks for a request to stop
_LONGEST = 4000  # characters of a note


@dataclass(frozen=True)
class Remark:
    """One line: what was done, by whom and when.

    Attributes:
        event: `note`, `tag`, `untag`, or `stop`.
        text: the note, the tag, or why to stop.
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
    """What people have said of a run or sweep, in the order of saying, by its file `REMARKS`."""

    path: Path

    def read(self) -> list[Remark]:
        """Return all remarks."""
        lines = filter(is_remark, read_lines(self.path))
        return [Remark(**{name: line[name] for name in _REMARK}) for line in lines]

    @property
    def notes(self) -> list[str]:
        return [remark.text for remark in self.read() if remark.event == "note"]

    @property
    def tags(self) -> list[str]:
        """The tags that were given and not taken away since, in the order of giving."""
        tags: dict[str, None] = {}
        for remark in self.read():
            if remark.event == "tag":
                tags.setdefault(remark.text)
            elif remark.event == "untag":
                tags.pop(remark.text, None)
        return list(tags)

    def add(self, event: str, text: str = "") -> None:
        """Add a remark of the user of this process.

        Raises:
            UserError: the folder cannot be written.
        """
        remark = Remark(event, text, f"{_user()} on {os.uname().nodename}", time.time())
        append_line(self.path, vars(remark))

    def add_note(self, text: str) -> None:
        """Add a note.

        Raises:
            UserError: it is empty or too long.
        """
        if not 0 < len(text.strip()) <= _LONGEST:
            raise UserError(f"a note has 1 to {_LONGEST:,} characters, this one {len(text):,}")
        self.add("note", text.strip())

    def add_tags(self, tags: Iterable[str], *, remove: bool = False) -> None:
        """Give or take away tags.

        Raises:
            UserError: one of them is no word, or is to be taken away and is not there.
        """
        tags, given = list(tags), self.tags
        for tag in tags:
            if not re.fullmatch(r"[\w.+:/-]{1,60}", tag):
                raise UserError(f"tag {tag!r}: a word of letters, digits and . + : / - _")
            if remove and tag not in given:
                raise UserError(f"tag {tag!r} is not there{suggest(tag, given)}")
        for tag in tags:
            if remove or tag not in given:
                self.add("untag" if remove else "tag", tag)


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
