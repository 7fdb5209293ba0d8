"""Locks that die with their owner; a heartbeat in them where a file system locks per node only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tread_lab.records.durable import writing
from tread_lab.specs.errors import Unavailable, UserError

HEARTBEAT = 5.0  # seconds between two signs of life in a lock that is held
WATCHED = 2.5 * HEARTBEAT  # seconds that another node's lock is watched before it is taken over
STALE = 300.0  # seconds after which it is taken over at once; clocks may differ by less
FRESH = 60.0  # seconds for which another node's lock counts as held by those who only look
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR)  # EACCES: NFS


class Busy(UserError):
    """Somebody else holds the lock."""


class NoLocks(Unavailable):
    """The file system has no working locks."""


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold `path` as a lock for the block; the system frees it when the process ends, however.

    Some file systems lock per node only (NFS with nolock, Lustre with localflock), which nothing
    tells. So the holder writes its name into the file and touches it every few seconds. Where the
    lock is free but names another host, the file is watched, and a touch there means `Busy`.

    Raises:
        Busy: another live process holds it.
        NoLocks: the file system has no locks, so that two processes could write the same files.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    with file:
        if not _acquired(file, path):
            raise Busy(f"{what} is in use by another process ({holder(path)})")
        if _beats_elsewhere(path):
            raise Busy(
                f"{what} is in use by another process ({holder(path)}), and locks of this file"
                " system end at the node: mount it with locks for all nodes (Lustre: -o flock)"
            )
        _sign(file, path)
        with _heartbeat(path):
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), 0)


def is_held(path: Path) -> bool:
    """Return whether a live process holds the lock, as far as this node can see."""
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in _HELD:
            return True
    return _other_host(path) is not None and _age(path) < FRESH


def holder(path: Path) -> str:
    """Return who wrote its name into the lock last."""
    try:
        return path.read_text() or "unknown"
    except OSError:
        return "unknown"


def _acquired(file: IO[str], path: Path) -> bool:
    """Try for a quarter of a second: `is_held` of a bystander holds the lock for an instant."""
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _HELD:
                raise NoLocks(
                    f"{path}: this file system has no working locks ({error.strerror}), and two"
                    " processes could write the same run: choose a --root on one that has (a local"
                    " disk, NFS 4, Lustre mounted with -o flock)"
                ) from error
            time.sleep(0.05)
    return False


def _sign(file: IO[str], path: Path) -> None:
    """Write who holds the lock, past the buffer: a full disk must not be met again on closing."""
    with writing(path):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"pid {os.getpid()} on {os.uname().nodename}".encode())


@contextlib.contextmanager
def _heartbeat(path: Path) -> Iterator[None]:
    """Touch the lock every few seconds while the block goes on."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(HEARTBEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    threading.Thread(target=beat, name=f"heartbeat of {path}", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _beats_elsewhere(path: Path) -> bool:
    """Whether another host goes on touching the lock that we have just been given."""
    if _other_host(path) is None or _age(path) > STALE:
        return False
    first, until = _stamp(path), time.monotonic() + WATCHED
    while time.monotonic() < until:
        if _stamp(path) != first:
            return True
        time.sleep(WATCHED / 50)
    return False


def _other_host(path: Path) -> str | None:
    """The host that the lock names, if it is not ours."""
    match = re.fullmatch(r"pid \d+ on (\S+)", holder(path))
    return match[1] if match and match[1] != os.uname().nodename else None


def _age(path: Path) -> float:
    """Seconds since the last sign in the lock; a clock that goes ahead counts as one that lags."""
    return abs(time.time() - _stamp(path) / 1e9)


def _stamp(path: Path) -> int:
    """When the lock was last touched, asked of the server: opening a file on NFS looks anew."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return 0
