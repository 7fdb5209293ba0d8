"""Files that are whole or absent: replaced at once, or appended to line by line, as logs are."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tread_lab.config.errors import Unavailable, UserError, first_line, shown

Tree = dict[str, Any]
FORMAT = 2  # of plans and of specs of runs
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EROFS, errno.EPERM)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a temporary path that replaces `path` if the block succeeds.

    Raises:
        UserError: an unwritable folder or a full disk; `path` is unchanged.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        name.touch(exist_ok=False)  # with the permissions that the umask leaves
        temporary, mode = name, name.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors replaces the file by one that only its owner can read
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except Exception as error:
        cause = _of_the_system(error)
        if cause is None:
            raise
        raise disk_error(cause, path) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _of_the_system(error: Exception) -> OSError | None:
    """The error of the system behind `error`; safetensors, in Rust, tells of it in words only."""
    if isinstance(error, OSError):
        return error
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    """Return the value in `path`, or `None` without the file.

    Raises:
        UserError: the file is not JSON; names it.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: must be JSON, got {first_line(error)}. Try restoring or deleting the file."
        ) from None


def modified(path: Path) -> float | None:
    """Return when a file was last written, in seconds; `None` if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def disk_error(error: OSError, path: Path, option: str = " with --root") -> UserError:
    """Return the one-line error of a failed write; `option` selects another folder."""
    failed = f"cannot write {path}: {error.strerror or error}"
    if error.errno in FULL:
        return DiskFull(f"{failed}. Free space and run the same command again.")
    which = "a writable folder" if error.errno in _FORBIDDEN else "another folder"
    return UserError(f"{failed}. Try {which}{option}.")


@contextlib.contextmanager
def writing(path: Path, option: str = " with --root") -> Iterator[None]:
    """Convert system errors of writes in the block to `disk_error`."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, option) from error


class DiskFull(Unavailable):
    """The disk is full; existing files are intact."""


def of_format(tree: Any, path: Path) -> Tree:
    """Return the tree of a plan or spec without its format number.

    Raises:
        UserError: another format; names the file.
    """
    found = tree.pop("format", None) if isinstance(tree, dict) else None
    if found != FORMAT:
        remedy = "Try another --root, or the version that wrote it"
        raise UserError(f"{path}: must have format {FORMAT}, got {shown(found)}. {remedy}.")
    return dict(tree)


def digest(content: str | bytes) -> str:
    """First sixteen hexadecimal digits of the SHA-256."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines; a truncated last line is skipped.

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
                        f"{path}: each line must be JSON, got {first_line(error)} in line {number}"
                        ". Try deleting the line."
                    ) from None


def open_lines(path: Path) -> IO[str]:
    """Open a file for appending, after removing a truncated last line.

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
    """Append one line and flush it to the disk.

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
    """The last entry per (key, step), sorted by step."""
    unique = {(entry.key, entry.step): entry for entry in entries}
    return sorted(unique.values(), key=lambda entry: entry.step)
