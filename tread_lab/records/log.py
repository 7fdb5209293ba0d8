"""Append-only files of JSON lines, and the log of a run."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tread_lab.config.errors import UserError, first_line
from tread_lab.records.durable import writing


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the whole lines; a torn last line is none.

    Raises:
        UserError: a line is not JSON; names the file.
    """
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        for number, raw in enumerate(file, start=1):
            if raw.endswith(b"\n"):
                try:
                    yield json.loads(raw)
                except ValueError as error:
                    raise UserError(
                        f"{path}: must hold a JSON value in each line, got {first_line(error)} in"
                        f" line {number}. Try deleting the line."
                    ) from None


def open_lines(path: Path) -> IO[str]:
    """Open a file for appending; a torn last line is dropped first.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        if not content.endswith(b"\n"):
            path.open("ab").close()
            os.truncate(path, content.rfind(b"\n") + 1)
        return path.open("a", encoding="utf-8")


def append_line(path: Path, tree: Mapping[str, Any]) -> None:
    """Add one line and wait until it is on the disk.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    with writing(path), open_lines(path) as file:
        file.write(json.dumps(tree) + "\n")
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class Entry:
    """One logged value: step, key, value and the wall clock in seconds."""

    step: int
    key: str
    value: float
    time: float


class LogWriter:
    """Appends entries to a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_lines(path)

    def __call__(self, step: int, **values: float) -> None:
        """Log `key=value` pairs at one step; `/` in keys is written with a dict: `log(1, **d)`."""
        now = round(time.time(), 3)
        with writing(self.path):
            for key, value in values.items():
                number = float(value) if math.isfinite(value) else str(float(value))
                tree = {"step": step, "key": key, "value": number, "time": now}
                self._file.write(json.dumps(tree) + "\n")
            self._file.flush()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        with writing(self.path):
            self._file.close()


def read_entries(path: Path) -> Iterator[Entry]:
    """Yield the entries in file order."""
    for tree in read_lines(path):
        yield Entry(tree["step"], tree["key"], float(tree["value"]), tree["time"])


def latest(entries: Iterable[Entry]) -> list[Entry]:
    """One entry per (key, step), the last written winning, sorted by step."""
    unique = {(entry.key, entry.step): entry for entry in entries}
    return sorted(unique.values(), key=lambda entry: entry.step)
