"""Claims about locks: held, free, absent, and seen by one node only."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.faults.drivers import eventually
from tread_lab.records import locks
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, NoLocks, exclusive, is_held
from tread_lab.specs.errors import Unavailable

OWNER = """
import pathlib, sys, time
from tread_lab.records import locks
locks.HEARTBEAT = 0.05
if sys.argv[2] != "here":
    locks._machine = lambda: sys.argv[2]
with locks.exclusive(pathlib.Path(sys.argv[1]), "x"):
    print("held", flush=True); time.sleep(60)
"""


@contextmanager
def owner(path: Path, machine: str = "here") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock, on another machine of the same hostname if named."""
    command = [sys.executable, "-c", OWNER, str(path), machine]
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


class Clock:
    """The time of a watcher: sleeping passes it at once."""

    def __init__(self) -> None:
        self.now, self.slept = 100.0, 0.0

    def sleep(self, seconds: float) -> None:
        self.now, self.slept = self.now + seconds, self.slept + seconds

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(locks, "time", clock)
    return clock


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


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EACCES, errno.EINTR])
def test_a_lock_that_is_refused_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(locks.fcntl, "flock", fails_with(number))
    assert is_held(path)
    with pytest.raises(Busy), exclusive(path, "x"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
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
@pytest.mark.parametrize(("machine", "hours"), [("here", -1), ("another", 1)])
def test_a_live_owner_that_the_lock_does_not_show_is_found_whatever_clocks_and_hostnames_say(
    tmp_path: Path, machine: str, hours: int
) -> None:
    path, dated = tmp_path / "lock", time.time() + 3600 * hours
    with owner(path, machine) as process:
        os.utime(path, (dated, dated))
        assert is_held(path)
        os.utime(path, (dated, dated))
        with pytest.raises(
            Busy, match=rf"pid {process.pid} on \S+\), and locks of this file system"
        ):
            with exclusive(path, "run r"):
                pass


LEFT = ["pid 1 on node-b", "pid 1 on node-b; 1f2e/77 5c6d 12"]  # as 0.2.0 signed, and as now
STRANGE = f"pid {10**20} on node-b; {locks._machine()} 5c6d 12"  # no process can have it


@pytest.mark.parametrize("left", [*LEFT, STRANGE])
@pytest.mark.parametrize("hours", [-24, 24])
def test_a_lock_that_a_dead_owner_left_elsewhere_is_taken_over_once_it_was_watched(
    tmp_path: Path, clock: Clock, left: str, hours: int
) -> None:
    path, dated = tmp_path / "lock", time.time() + 3600 * hours
    path.write_text(left)
    os.utime(path, (dated, dated))
    with exclusive(path, "x"):
        assert path.read_text().startswith(f"pid {os.getpid()} on {os.uname().nodename}; ")
    assert path.read_text() == "" and not is_held(path)
    assert clock.slept == pytest.approx(12.5, abs=0.3)


def test_locks_beside_each_other_are_watched_together(tmp_path: Path, clock: Clock) -> None:
    paths = [tmp_path / name / "lock" for name in "abc"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(LEFT[1])
    assert not any(is_held(path) for path in paths[:2])
    for path in paths[1:]:
        with exclusive(path, "x"):
            assert clock.slept == pytest.approx(12.5, abs=0.3)
    paths[0].write_text(LEFT[1][:-1] + "3")  # a change that was seen is a sign of life
    assert is_held(paths[0]) and clock.slept < 13
    clock.now += 13
    assert not is_held(paths[0]) and clock.slept < 13
    paths[0].write_text(LEFT[1][:-1] + "4")
    assert is_held(paths[0])
    with exclusive(paths[0], "x"):  # whose owner has ended since: it is watched anew
        assert clock.slept == pytest.approx(25, abs=0.6)


def test_the_lock_of_a_killed_process_of_this_machine_is_free_at_once(
    tmp_path: Path, clock: Clock
) -> None:
    path = tmp_path / "lock"
    with owner(path) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # killed, and not yet reaped
        assert path.read_text().startswith(f"pid {process.pid} on ") and not is_held(path)
    with exclusive(path, "x"):
        assert clock.slept == 0


def test_a_held_lock_counts_on_and_a_free_one_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "HEARTBEAT", 0.01)
    path, seen = tmp_path / "lock", set[str]()
    with exclusive(path, "x"):
        eventually(lambda: seen.add(path.read_text()) or len(seen) >= 3)
    assert path.read_text() == ""


@pytest.mark.parametrize("again", [False, True])
def test_a_lock_whose_folder_goes_while_one_waits_for_it_is_not_held(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import replaces the folder of a run, and `rm` removes it, while they hold its lock."""
    path, flock = tmp_path / "run" / "lock", fcntl.flock

    def waits(file: Any, how: int) -> None:
        path.parent.rename(tmp_path / "old")
        if again:
            path.parent.mkdir()
            path.touch()
        flock(file, how)

    monkeypatch.setattr(locks.fcntl, "flock", waits)
    with pytest.raises(Busy), exclusive(path, "x"):
        pass


def test_nobody_holds_a_lock_that_was_never_made(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "lock") and locks.holder(tmp_path / "lock") == "unknown"
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looked_at:  # by another who asks the same
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert not is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "lock") and locks.holder(tmp_path / "lock") == "unknown"


@pytest.mark.parametrize(("refusals", "held"), [(4, True), (5, False)])
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
