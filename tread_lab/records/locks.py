"""Locks that die with their owner; where a file system has none, a file made exclusively."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tread_lab.config.errors import UserError
from tread_lab.records.durable import writing

_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR)  # EACCES: NFS
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class Busy(UserError):
    """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold the lock `path` within the block; the system releases it when the process ends.

    On file systems without locks, a file beside `path` names process and host. After a kill it must
    be removed by hand.

    Raises:
        Busy: another process holds it.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    with file:
        try:
            acquired = _acquired(file)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            with _made(path, what):
                yield
            return
        if not acquired:
            raise Busy(f"{what} is in use by another process ({holder(path)})")
        with writing(path):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), _sign().encode(), 0)
        yield


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno in _HELD or _made_path(path).exists()
    return False


def holder(path: Path) -> str:
    """Return process and host of the last lock holder."""
    for place in (_made_path(path), path):
        with contextlib.suppress(OSError):
            if sign := place.read_text(errors="replace"):
                return sign
    return "unknown"


def _sign() -> str:
    return f"pid {os.getpid()} on {os.uname().nodename}"


def _acquired(file: IO[bytes]) -> bool:
    """Try for a quarter of a second: `is_held` of a bystander holds the lock for an instant."""
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _HELD:
                raise
            time.sleep(0.05)
    return False


def _made_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.owner")


@contextlib.contextmanager
def _made(path: Path, what: str) -> Iterator[None]:
    """Hold a lock on a file system without `flock`."""
    place = _made_path(path)
    try:
        with place.open("x") as file:
            file.write(_sign())
    except FileExistsError:
        raise Busy(
            f"{what} is in use by another process ({holder(path)}); if that process has ended,"
            f" remove {place}"
        ) from None
    try:
        yield
    finally:
        place.unlink(missing_ok=True)
