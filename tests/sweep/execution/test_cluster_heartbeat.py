"""Claims about a lost cluster: it is noticed, and only when it is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.sweep.execution import cluster_heartbeat
from tread_lab.sweep.execution.cluster_heartbeat import (
    answers,
    command_line,
    monitor_addresses,
    monitor_daemons,
)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_heartbeat, "_EVERY", 0.05)


@pytest.mark.usefixtures("quick")
def test_an_address_is_asked_until_it_answers_or_its_time_is_over() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = server.getsockname()
        began = time.monotonic()
        assert not answers(address) and not answers(address, within=0.3)
        assert time.monotonic() - began >= 0.3
        coming = threading.Timer(0.3, server.listen)
        coming.start()
        assert answers(address, within=20) and answers(address)
        coming.join()


@pytest.mark.usefixtures("quick")
def test_an_address_that_stops_answering_is_lost_and_one_that_answers_is_not() -> None:
    lost: list[str] = []
    told = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = socket.create_server(("127.0.0.1", 0))
        addresses = {server.getsockname(): 0.5, other.getsockname(): 0.5}
        with monitor_addresses(addresses, lambda message: (lost.append(message), told.set())):  # type: ignore[func-returns-value]
            assert not told.wait(1.0)
            server.close()
            closed = time.monotonic()
            assert told.wait(5.0) and time.monotonic() - closed > 0.4
    assert f":{next(iter(addresses))[1]} has not answered" in lost[0] and len(lost) == 1


def test_a_killed_daemon_of_a_local_cluster_is_noticed_at_once() -> None:
    lost: list[str] = []
    told = threading.Event()
    with subprocess.Popen(["sleep", "60"]) as daemon:
        ended = lambda: "raylet" if daemon.poll() is not None else ""  # noqa: E731
        with monitor_daemons(ended, lambda message: (lost.append(message), told.set())):  # type: ignore[func-returns-value]
            assert not told.wait(0.5)
            daemon.kill()
            assert told.wait(2.0)
    assert "its process raylet has ended" in lost[0] and len(lost) == 1


def test_leaving_is_one_line_and_a_code_of_its_own_and_ends_what_was_started() -> None:
    code = (
        "import subprocess, tread_lab.sweep.execution.cluster_heartbeat as l\n"
        "shell = subprocess.Popen(['sh', '-c', 'sleep 600; true'], stdout=subprocess.DEVNULL)\n"
        "while len(started := l.descendants(shell.pid)) < 1: pass\n"
        "print(shell.pid, *started, flush=True); l.leave('gone'); print('not reached')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
    shell, sleep = map(int, done.stdout.split())
    assert (done.returncode, done.stderr.strip()) == (3, "tread-lab: gone")
    assert command_line(shell) == command_line(sleep) == b""


@pytest.mark.parametrize(("patience", "looks"), [(5.0, 3), (30.0, 15)])
def test_an_address_is_lost_after_its_seconds_of_silence(
    monkeypatch: pytest.MonkeyPatch, patience: float, looks: int
) -> None:
    clock, asked = [100.0], list[float]()

    @contextmanager
    def monitor(message: Any, seconds: float, lost: Any) -> Any:
        assert seconds == 2.0
        while not (text := message()):
            clock[0] += 2.0
            asked.append(clock[0])
        lost(text)
        yield

    monkeypatch.setattr(cluster_heartbeat, "_monitor", monitor)
    monkeypatch.setattr(cluster_heartbeat, "answers", lambda address: address == ("b", 2))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    lost: list[str] = []
    with monitor_addresses({("b", 2): 0.0, ("a", 1): patience}, lost.append):
        pass
    assert len(asked) == looks + (patience % 2 == 0)
    assert lost[0].startswith(
        f"the Ray cluster is lost (a:1 has not answered for {patience:.0f} s)"
    )


def test_a_driver_that_was_held_up_itself_loses_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = [100.0], list[str]()

    @contextmanager
    def monitor(message: Any, seconds: float, lost: Any) -> Any:
        for pause in (2.0, 60.0, 2.0, 0.0):
            said.append(message())
            clock[0] += pause
        yield

    monkeypatch.setattr(cluster_heartbeat, "_monitor", monitor)
    monkeypatch.setattr(cluster_heartbeat, "answers", lambda address: False)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with monitor_addresses({("a", 1): 9.0}, said.append):
        pass
    assert said[:2] == ["", ""]  # 60 s passed, of which this process can answer for 6
    assert [bool(text) for text in said[2:]] == [False, True]


def test_a_cluster_that_is_left_while_it_is_asked_is_not_lost() -> None:
    asked, left, lost = threading.Event(), threading.Event(), list[str]()

    def ended() -> str:
        asked.set()
        left.wait(20)
        return "raylet"

    earlier = set(threading.enumerate())
    with monitor_daemons(ended, lost.append):
        (watcher,) = set(threading.enumerate()) - earlier
        assert asked.wait(20)
    left.set()
    watcher.join(20)
    assert lost == [] and not watcher.is_alive()


def test_leaving_shows_the_cursor_and_does_the_last_thing_before_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Any] = []
    fake = SimpleNamespace(
        write=lambda fd, text: done.append((fd, text)), open=lambda path, how: 9,
        devnull="/dev/null", O_WRONLY=1, dup2=lambda a, b: done.append((a, b)),
        _exit=done.append, getpid=lambda: 7,
    )  # fmt: skip
    monkeypatch.setattr(cluster_heartbeat, "os", fake)
    monkeypatch.setattr(cluster_heartbeat, "descendants", lambda pid: {pid + 1})
    monkeypatch.setattr(cluster_heartbeat, "kill", lambda pid: done.append(("killed", pid)))
    monkeypatch.setattr(cluster_heartbeat.sys.stderr, "isatty", lambda: True)
    cluster_heartbeat.leave("gone", lambda: done.append(1 / 0), code=130)
    shown = b"\x1b[?25h\ntread-lab: gone\n"
    assert done == [(2, shown), (9, 1), (9, 2), ("killed", 8), 130]


def test_an_address_is_asked_four_times_in_the_time_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, asked = [100.0], list[Any]()

    def connect(address: Any, timeout: float) -> Any:
        asked.append((address, timeout))
        raise OSError

    monkeypatch.setattr(cluster_heartbeat.socket, "create_connection", connect)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    assert not answers(("a", 1), within=1.0) and clock == [101.0]
    assert asked == [(("a", 1), 2.0)] * 3
    assert not answers(("a", 1)) and len(asked) == 4 and clock == [101.0]


def test_patience_is_longer_with_other_machines() -> None:
    names = ("_EVERY", "OWN_PATIENCE", "PATIENCE", "_LOOK")
    assert [getattr(cluster_heartbeat, name) for name in names] == [2.0, 5.0, 30.0, 0.1]


def test_the_monitor_ends_with_its_process_and_says_once_that_all_is_lost() -> None:
    lost: list[str] = []
    earlier = set(threading.enumerate())
    with monitor_daemons(lambda: "raylet", lost.append):
        (watcher,) = set(threading.enumerate()) - earlier
        assert watcher.daemon and watcher.name == "cluster-heartbeat"
        watcher.join(20)
        assert not watcher.is_alive()
    assert len(lost) == 1


def test_leaving_writes_nothing_else_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def opened(path: str, how: int) -> int:
        assert (path, how) == ("/dev/null", 1)
        return 9

    fake = SimpleNamespace(
        write=lambda fd, text: done.append((fd, text)), open=opened, devnull="/dev/null",
        O_WRONLY=1, dup2=lambda a, b: done.append((a, b)), _exit=done.append, getpid=lambda: 7,
    )  # fmt: skip
    monkeypatch.setattr(cluster_heartbeat, "os", fake)
    monkeypatch.setattr(cluster_heartbeat, "descendants", lambda pid: ())
    monkeypatch.setattr(cluster_heartbeat.sys.stderr, "isatty", lambda: False)
    cluster_heartbeat.leave("gone", lambda: done.append("last"))
    assert done == [(2, b"\ntread-lab: gone\n"), (9, 1), (9, 2), "last", 3]
