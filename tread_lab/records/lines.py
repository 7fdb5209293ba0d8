"""Append-only files of JSON lines, each with its checksum; torn or changed ones are noticed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from tread_lab.records.checksums import checksum
from tread_lab.records.durable import writing


def with_checksum(tree: Mapping[str, Any]) -> str:
    """Return a line with the checksum of all that stands before it."""
    body = json.dumps(tree)
    return f'{body[:-1]}, "crc": "{checksum(body)}"}}\n'


def without_checksum(raw: bytes) -> dict[str, Any] | None:
    """Return what a line holds, `None` if it is damaged."""
    try:
        head, _, tail = raw.decode().rstrip("\n").rpartition(', "crc": "')
        body = head + "}"
        if tail != f'{checksum(body)}"}}':
            return None
        tree: dict[str, Any] = json.loads(body)
    except ValueError:
        return None
    return tree


def read_lines(path: Path, offset: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the undamaged lines from byte `offset` on."""
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        file.seek(offset)
        for raw in file:
            tree = without_checksum(raw)
            if tree is not None:
                yield tree


def open_lines(path: Path) -> IO[str]:
    """Open a file for appending; a torn last line is ended first.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and _last_byte(path) not in (b"", b"\n")
        file = path.open("a", encoding="utf-8")
        if torn:
            file.write("\n")
    return file


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        return file.read(1)


def append_line(path: Path, tree: Mapping[str, Any]) -> None:
    """Add one line and wait until it is on the disk.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    with writing(path), open_lines(path) as file:
        file.write(with_checksum(tree))
        file.flush()
        os.fsync(file.fileno())
