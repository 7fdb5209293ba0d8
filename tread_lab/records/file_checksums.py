"""Size and checksum of finished files, kept in the record that was written after them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

Mark = dict[str, int]
_CHUNK = 1 << 20
_READ_AGAIN = 16 * _CHUNK  # bytes; of larger files only the size is looked at later


def marks(paths: Iterable[Path]) -> dict[str, Mark]:
    """Name -> size and checksum of each of these files that is there."""
    return {path.name: _mark(path) for path in sorted(paths) if path.is_file()}


def changed(folder: Path, known: Mapping[str, Mark]) -> list[str]:
    """The files of `folder` that are not as they were marked, but cut or changed.

    What was appended since is no damage, and what is absent was removed to save room.
    """
    return [name for name, mark in known.items() if _differs(folder / name, mark)]


def _differs(path: Path, mark: Mark) -> bool:
    try:
        if path.stat().st_size < mark["bytes"]:
            return True
        return mark["bytes"] <= _READ_AGAIN and _checksum(path, mark["bytes"]) != mark["crc"]
    except FileNotFoundError:
        return False


def _mark(path: Path) -> Mark:
    size = path.stat().st_size
    return {"bytes": size, "crc": _checksum(path, size) if size <= _READ_AGAIN else 0}


def _checksum(path: Path, size: int) -> int:
    found = 0
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, _CHUNK))):
            found, size = zlib.crc32(part, found), size - len(part)
    return found
