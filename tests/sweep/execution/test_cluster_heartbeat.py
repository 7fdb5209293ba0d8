"""Claims about a lost cluster: it is noticed, and only when it is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tread_lab.sweep.execution import cluster_heartbeat
from tread_lab.sweep.execution.cluster_heartbeat import (
    answers,
    command_line,
    monitor,
    monitor_addresses,
)


def test_an_address_is_asked_until_it_answers_or_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_heartbeat, "_EVERY", 0.05)
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


@pytest.mark.parametrize(("how", "exit_code"), [("", 3), (", code=130", 130)])
def test_leaving_is_one_line_and_a_code_of_its_own_and_ends_what_was_started(
    how: str, exit_code: int
) -> None:
    code = (
        "import os, subprocess, tread_lab.sweep.execution.cluster_heartbeat as l\n"
        "shell = subprocess.Popen(['sh', '-c', 'sleep 600; true'], stdout=subprocess.DEVNULL)\n"
        "while len(started := l.descendants(shell.pid)) < 1: pass\n"
        "print(shell.pid, *started, flush=True); "
        f"l.leave('gone'{how}); print('not reached')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
    shell, sleep = map(int, done.stdout.split())
    assert (done.returncode, done.stderr.strip()) == (exit_code, "tread-lab: gone")
    assert command_line(shell) == command_line(sleep) == b""


def test_a_process_is_killed_before_those_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, parent in ((17, 100), (8, 17), (33, 8), (40, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1 0")
    monkeypatch.setattr(cluster_heartbeat, "Path", lambda _: tmp_path)
    assert [*cluster_heartbeat.descendants(100)] == [17, 8, 33]


@pytest.fixture
def polled(clock: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a monitor says after each of some pauses; only the address `b` answers."""
    said = list[str]()

    @contextmanager
    def polls(message: Any, seconds: float, lost: Any) -> Any:
        assert seconds == 2.0
        said.append(message())
        for pause in pauses:
            clock.now += pause
            said.append(message())
        yield

    monkeypatch.setattr(cluster_heartbeat, "monitor", polls)
    monkeypatch.setattr(cluster_heartbeat, "answers", lambda address: address == ("b", 2))
    pauses: list[float] = []

    def poll(patience: float, *given: float) -> list[str]:
        pauses.extend(given)
        with monitor_addresses({("b", 2): 0.0, ("a", 1): patience}, said.append):
            return said

    return poll


@pytest.mark.parametrize(
    ("patience", "pauses", "silent"),
    [
        (5.0, [2.0] * 3, 3),
        (30.0, [2.0] * 16, 16),
        (9.0, [2.0, 60.0, 2.0], 3),  # of 60 s this process can answer for 6: 2 + 6 + 2 are more
    ],
)
def test_an_address_is_lost_after_its_seconds_of_silence_but_those_of_a_driver_held_up(
    polled: Any, patience: float, pauses: list[float], silent: int
) -> None:
    said = polled(patience, *pauses)
    assert said[:silent] == [""] * silent and all(said[silent:])
    why = f"the Ray cluster is lost (a:1 has not answered for {patience:.0f} s)"
    assert all(line.startswith(why) for line in said[silent:])


def test_a_cluster_that_is_left_while_it_is_asked_is_not_lost() -> None:
    asked, left, lost = threading.Event(), threading.Event(), list[str]()

    def message() -> str:
        asked.set()
        left.wait(20)
        return "lost"

    earlier = set(threading.enumerate())
    with monitor(message, 0.1, lost.append):
        (watcher,) = set(threading.enumerate()) - earlier
        assert asked.wait(20)
    left.set()
    watcher.join(20)
    assert lost == [] and not watcher.is_alive()


def test_the_monitor_ends_with_its_process_and_says_once_that_all_is_lost() -> None:
    lost: list[str] = []
    earlier = set(threading.enumerate())
    with monitor(lambda: "lost", 0.1, lost.append):
        (watcher,) = set(threading.enumerate()) - earlier
        assert watcher.daemon and watcher.name == "cluster-heartbeat"
        watcher.join(20)
        assert not watcher.is_alive()
    assert lost == ["lost"]
