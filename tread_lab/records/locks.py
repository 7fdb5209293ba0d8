"""Locks that die with their owner; a heartbeat in them where a file system locks per node only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tread_lab.records.durable import writing
from tread_lab.specs.errors import Unavailable, UserError

HEARTBEAT = 5.0  # seconds between two signs of life in a lock that is held
WATCHED = 2.5 * HEARTBEAT  # seconds without a sign, by the watcher's own clock, that end a lock
_HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR)  # EACCES: NFS
_SIGN = re.compile(r"(?P<owner>pid (?P<pid>\d+) on .+?)(?:; (?P<machine>\S+) \S+ \d+)?")


class Busy(UserError):
    """Somebody else holds the lock."""


class NoLocks(Unavailable):
    """The file system has no working locks."""


@contextlib.contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold `path` as a lock for the block; the system frees it when the process ends, however.

    Some file systems lock per node only (NFS with nolock, Lustre with localflock), which nothing
    tells. So the holder signs the file and counts on in it every few seconds. Where the lock is
    free but signed by a process that may live elsewhere, the file is watched, and a change means
    `Busy`. No clocks of two machines are compared.

    Raises:
        Busy: another live process holds it.
        NoLocks: the file system has no locks, so that two processes could write the same files.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    with file:
        if not _acquired(file, path):
            raise Busy(f"{what} is in use by another process ({holder(path)})")
        if (last := _looks.get(path)) and (last.changed or last.content != _read(path)):
            del _looks[path]  # whoever signed it since may have ended
        if _beats(path):
            raise Busy(
                f"{what} is in use by another process ({holder(path)}), and locks of this file"
                " system end at the node: mount it with locks for all nodes (Lustre: -o flock)"
            )
        with _signed(file, path):
            yield


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
    return _beats(path)


def holder(path: Path) -> str:
    """Return who signed the lock last."""
    sign = _SIGN.fullmatch(_read(path)[0])
    return sign["owner"] if sign else "unknown"


def _acquired(file: IO[bytes], path: Path) -> bool:
    """Try for a quarter of a second: `is_held` of a bystander holds the lock for an instant.

    The lock of a folder that was removed or replaced meanwhile is nobody's.
    """
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _lies_at(path, file)
        except OSError as error:
            if error.errno not in _HELD:
                raise NoLocks(
                    f"{path}: this file system has no working locks ({error.strerror}), and two"
                    " processes could write the same run: choose a --root on one that has (a local"
                    " disk, NFS 4, Lustre mounted with -o flock)"
                ) from error
            time.sleep(0.05)
    return False


def _lies_at(path: Path, file: IO[bytes]) -> bool:
    """Return whether an open file lies at its path still."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


@contextlib.contextmanager
def _signed(file: IO[bytes], path: Path) -> Iterator[None]:
    """Sign the lock and count on in it every few seconds while the block goes on."""
    owner, ended = f"pid {os.getpid()} on {os.uname().nodename}", threading.Event()
    sign = f"{owner}; {_machine()} {uuid.uuid4().hex[:12]}"

    def write(beat: int) -> None:  # past the buffer: a full disk must not be met again on closing
        os.pwrite(file.fileno(), f"{sign} {beat}".encode(), 0)
        os.fsync(file.fileno())

    def beat() -> None:
        n = 0
        while not ended.wait(HEARTBEAT):
            n += 1
            with contextlib.suppress(OSError):
                write(n)

    with writing(path):
        os.ftruncate(file.fileno(), 0)
        write(0)
    heart = threading.Thread(target=beat, name=f"heartbeat of {path}", daemon=True)
    heart.start()
    try:
        yield
    finally:
        ended.set()
        heart.join()  # it must not sign what is given back
        with contextlib.suppress(OSError):
            os.ftruncate(file.fileno(), 0)


@functools.cache
def _machine() -> str:
    """Return what no other machine has, and no other container: numbers of processes mean the same.

    A hostname is none: machines made from one image have equal ones.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return f"{uuid.getnode():x}"


def _has_ended(path: Path) -> bool:
    """Return whether nobody has signed the lock, or a process of this machine that has ended."""
    text = _read(path)[0]
    sign = _SIGN.fullmatch(text)
    if sign is None or sign["machine"] != _machine():
        return not text
    try:
        os.kill(int(sign["pid"]), 0)
        stat = Path(f"/proc/{sign['pid']}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] in "ZX"  # killed, and not yet reaped
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False


@dataclass(frozen=True)
class _Look:
    """What this process saw in a lock, since when, and whether it had seen something else."""

    content: tuple[str, int]
    since: float
    changed: bool


_looks: dict[Path, _Look] = {}


def _look(path: Path) -> _Look:
    last, content = _looks.get(path), _read(path)
    if last is None or last.content != content:
        _looks[path] = _Look(content, time.monotonic(), changed=last is not None)
    return _looks[path]


def _beats(path: Path) -> bool:
    """Return whether somebody goes on counting in the lock; watch it for as long as that takes.

    With it those beside it are watched: a question about the next one need not wait.
    """
    if path not in _looks and not _has_ended(path):
        for beside in path.parent.parent.glob(f"*/{path.name}"):
            _look(beside)
    while not _has_ended(path):
        look = _look(path)
        if look.changed or time.monotonic() - look.since > WATCHED:
            return time.monotonic() - look.since <= WATCHED
        time.sleep(WATCHED / 50)
    return False


def _read(path: Path) -> tuple[str, int]:
    """Return the text of a lock and when it was written; opening a file on NFS looks anew."""
    try:
        with path.open("rb") as file:
            return file.read().decode(errors="replace"), os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return "", 0
