"""Digests of files: SHA-256, and what a set of files holds, whatever its path."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tread_lab.config.errors import UserError
from tread_lab.config.units import amount
from tread_lab.records.durable import read_json, write_json

FOLDER = "data"  # of a lab's cache: the digests of sets that had to be read
_SAID = 2**28  # bytes from which on the reading is said


def sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file, cached per process."""
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@functools.cache
def _sha256(path: Path, size: int, changed: int, inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hashed(lines: Iterable[str]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def digest_of(
    path: Path,
    files: Sequence[tuple[str, Path]],
    cache: Path | None,
    say: Callable[[str], None],
) -> str:
    """Return 16 hexadecimal digits of names and contents of files.

    Files are read again only if a size, time or inode has changed.

    Args:
        path: path of the set, the key of the cache.
        cache: folder of a lab with known digests.
        say: called with a message before reading much data.
    """
    facts = [file.stat() for _, file in files]
    stamp = hashed(
        f"{name} {file} {fact.st_size} {fact.st_mtime_ns} {fact.st_ino}"
        for (name, file), fact in zip(files, facts)
    )
    kept = None if cache is None else cache / FOLDER / f"{hashed([str(path)])}.json"
    known = (read_json(kept) if kept is not None else None) or {}
    if known.get("stamp") == stamp:
        return str(known["digest"])
    if (size := sum(fact.st_size for fact in facts)) >= _SAID:
        say(f"{path}: hashing {amount(size)} of data (once)")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(sha256, (file for _, file in files))
        digest = hashed(f"{name} {own}" for (name, _), own in zip(files, found))
    if kept is not None:
        with contextlib.suppress(UserError):  # a lab that cannot be written to reads again
            write_json(kept, {"path": str(path), "stamp": stamp, "digest": digest})
    return digest
