"""Claims about locks: held, free, absent, and seen by one node only."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.records import locks
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, NoLocks, exclusive, is_held
from tread_lab.specs.errors import Unavailable

OWNER = """
import os, sys, time, types, pathlib
from tread_lab.records import locks
locks.HEARTBEAT = 0.05
if sys.argv[2] != "here":
    locks.os = types.SimpleNamespace(**vars(os))
    locks.os.uname = lambda: types.SimpleNamespace(nodename=sys.argv[2])
with locks.exclusive(pathlib.Path(sys.argv[1]), "x"):
    print("held", flush=True); time.sleep(60)
"""


@contextmanager
def owner(path: Path, host: str = "here") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, on a host of that name."""
    command = [sys.executable, "-c", OWNER, str(path), host]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def fails_with(number: int) -> Any:
    def flock(file: Any, how: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.fixture
def node_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that know nothing of other nodes: we always get them."""
    monkeypatch.setattr(locks.fcntl, "flock", lambda file, how: None)
    monkeypatch.setattr(locks, "WATCHED", 2.0)


def test_a_second_owner_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, "sweep x"):
        assert is_held(path)
        with pytest.raises(Busy, match=rf"sweep x is in use .*pid {os.getpid()}"):
            with exclusive(path, "sweep x"):
                pass
    assert not is_held(path)
    with exclusive(path, "sweep x"):
        pass


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with owner(path) as process:
        assert is_held(path)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 5
    while is_held(path) and time.monotonic() < until:
        time.sleep(0.01)
    with exclusive(path, "x"):
        pass


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EINTR])
def test_a_lock_that_is_refused_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(locks.fcntl, "flock", fails_with(number))
    assert is_held(path)
    with pytest.raises(Busy), exclusive(path, "x"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(locks.fcntl, "flock", fails_with(number))
    folder = Lab(tmp_path).sweep("s")
    with pytest.raises(NoLocks, match=r"no working locks \(.*choose a --root") as caught:
        with folder.lock():
            pass
    assert "\n" not in str(caught.value) and not isinstance(caught.value, Busy)
    assert isinstance(caught.value, Unavailable)  # no run is recorded as failed
    assert not folder.driven  # looking at such a lab still works


@pytest.mark.usefixtures("node_local")
def test_a_live_owner_on_another_node_is_found_by_its_heartbeat(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with owner(path, "node-b"):
        assert is_held(path)
        with pytest.raises(Busy, match=r"on node-b\), and locks of this file system end at the"):
            with exclusive(path, "run r"):
                pass


@pytest.mark.usefixtures("node_local")
def test_the_lock_of_a_dead_owner_on_another_node_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("pid 1 on node-b")
    with exclusive(path, "x"):
        assert path.read_text() == f"pid {os.getpid()} on {os.uname().nodename}"
    assert path.read_text() == "" and not is_held(path)


@pytest.mark.parametrize("hours", [-24, 24], ids=["old", "from a clock that is ahead"])
def test_an_old_lock_of_another_node_is_taken_over_at_once(tmp_path: Path, hours: int) -> None:
    path, touched = tmp_path / "lock", time.time() + 3600 * hours
    path.write_text("pid 1 on node-b")
    os.utime(path, (touched, touched))
    assert not is_held(path)
    started = time.monotonic()
    with exclusive(path, "x"):
        assert time.monotonic() - started < 5


def test_a_held_lock_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT", 0.02)
    path = tmp_path / "lock"
    with exclusive(path, "x"):
        os.utime(path, (1e9, 1e9))
        until = time.monotonic() + 5
        while path.stat().st_mtime == 1e9 and time.monotonic() < until:
            time.sleep(0.01)
        assert path.stat().st_mtime > 1e9


@pytest.mark.parametrize(("refusals", "held"), [(1, True), (4, True), (5, False)])
def test_a_lock_that_a_bystander_holds_for_an_instant_is_tried_five_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, held: bool
) -> None:
    calls = []

    def flock(file: Any, how: int) -> None:
        calls.append(how)
        if len(calls) <= refusals:
            raise BlockingIOError(errno.EWOULDBLOCK, "held")

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    monkeypatch.setattr(locks.time, "sleep", lambda seconds: None)
    outcome = nullcontext() if held else pytest.raises(Busy)
    with outcome, exclusive(tmp_path / "lock", "x"):
        pass
    assert len(calls) == min(refusals + 1, 5)


def test_another_nodes_lock_counts_as_held_for_a_minute(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("pid 1 on node-b")
    for age, held in ((30, True), (90, False)):
        touched = time.time() - age
        os.utime(path, (touched, touched))
        assert is_held(path) == held


def test_a_lock_is_signed_every_5_seconds_watched_for_12_and_stale_after_300(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    clock = [100.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(locks, "time", SimpleNamespace(
        time=time.time, monotonic=lambda: clock[0], sleep=sleep
    ))  # fmt: skip
    event = SimpleNamespace(wait=lambda seconds: waited.append(seconds) or True, set=lambda: None)
    threads = SimpleNamespace(Event=lambda: event, Thread=threading.Thread)
    monkeypatch.setattr(locks, "threading", threads)
    path = tmp_path / "lock"
    for age, watched in ((290, 12.5), (310, 0.0)):
        clock[0] = 100.0
        path.write_text("pid 1 on node-b")
        os.utime(path, (time.time() - age,) * 2)
        assert not locks._beats_elsewhere(path)
        assert clock[0] - 100.0 == pytest.approx(watched, abs=0.3)
    with locks._heartbeat(path):
        assert all(t.daemon for t in threading.enumerate() if t.name.startswith("heartbeat of"))
        until = time.monotonic() + 5
        while not waited and time.monotonic() < until:
            time.sleep(0.01)
    assert waited == [5.0]


def test_nobody_holds_a_lock_that_was_never_made(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "lock") and locks.holder(tmp_path / "lock") == "unknown"
    (tmp_path / "lock").touch()
    assert not is_held(tmp_path / "lock") and locks.holder(tmp_path / "lock") == "unknown"
