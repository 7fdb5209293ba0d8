"""Claims about a lost cluster: it is noticed, and only when it is lost."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest

from tread_lab.sweep.execution import cluster_heartbeat
from tread_lab.sweep.execution.cluster_heartbeat import monitor_addresses, monitor_daemons


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_heartbeat, "_EVERY", 0.05)


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


def test_leaving_is_one_line_and_a_code_of_its_own() -> None:
    code = (
        "import tread_lab.sweep.execution.cluster_heartbeat as l\n"
        "l.leave('gone'); print('not reached')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (3, "", "tread-lab: gone")
