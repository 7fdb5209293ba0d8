"""Somebody is told how a sweep has ended, and nothing of that harms the sweep or shows a secret."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.faults.sweeps import SMALL
from tests.synthetic import small, write_sweep
from tread_lab.cli import main
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.terminal.notify import notification_target, notified

SECRET = "hunter2"
SWEEP = ["sweep", "small.yaml", "--executor", "inline", "--device", "cpu", "--no-mlflow"]


@pytest.fixture
def service() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A server on this machine, and what it was told."""
    told: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200 if len(told) == 1 else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, told
    server.shutdown()
    server.server_close()


def test_a_service_is_told_and_its_refusal_and_password_are_not_the_sweeps_affair(
    in_folder: Path,
    no_figures: None,
    service: tuple[int, list[dict[str, Any]]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("apprise")
    port, told = service
    (in_folder / "small.yaml").write_text(SMALL)
    words = [*SWEEP, "--notify", f"json://me:{SECRET}@127.0.0.1:{port}/"]
    assert main(words) == 0
    assert main(words) == 0  # complete, and the service answers 500
    assert [one["title"] for one in told] == ["tread-lab: small ended"] * 2
    assert "completed" in told[0]["message"] and str(in_folder / "lab") in told[0]["message"]
    out, err = capfd.readouterr()
    assert "the notification of small failed (RuntimeError)" in err
    assert SECRET not in out + err
    kept = [path for path in (in_folder / "lab").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if SECRET.encode() in path.read_bytes()]


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, Callable[[], dict[str, Any]]]:
    """A command that keeps what it is told, and a function that returns that."""
    file = tmp_path / "told.json"
    return f"sh -c 'cat > {file}'", lambda: json.loads(file.read_text())


@pytest.mark.parametrize(
    ("outcome", "event", "code", "message"),
    [
        (0, "ended", 0, ""),
        (1, "failed", 1, ""),
        (130, "waits", 130, ""),
        (Unavailable("the disk is full"), "waits", 3, "the disk is full"),
        (UserError("no data"), "failed", 2, "no data"),
        (ValueError("a defect"), "failed", 1, "a defect"),
        (KeyboardInterrupt(), "waits", 130, "KeyboardInterrupt"),
    ],
)
def test_a_command_gets_json(
    lab: Lab,
    command: tuple[str, Callable[[], dict[str, Any]]],
    outcome: int | BaseException,
    event: str,
    code: int,
    message: str,
) -> None:
    target, told = command

    def drive() -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    if isinstance(outcome, int):
        assert notified(target, lab, "small", drive) == outcome
    else:
        with pytest.raises(type(outcome)):
            notified(target, lab, "small", drive)
    expected = {"sweep": "small", "event": event, "exit_code": code, "message": message}
    assert told().items() >= {**expected, "lab": str(lab.root)}.items()


def test_a_sweep_with_runs_that_are_left_waits(
    lab: Lab, command: tuple[str, Callable[[], dict[str, Any]]]
) -> None:
    write_sweep(lab.root, small(states={(2, 8): "pending"}))
    assert notified(command[0], lab, "placement", lambda: 0) == 0
    told = command[1]()
    assert told["event"] == "waits" and told["runs"] == {"completed": 3, "pending": 1}
    assert notified(command[0], lab, "placement", lambda: 2) == 2
    assert command[1]()["event"] == "failed"
    lab = write_sweep(lab.root / "searched", small())
    path = lab.sweep("placement").plan_path
    write_json(path, {**read_json(path), "search": {}})
    assert notified(command[0], lab, "placement", lambda: 0) == 0
    told = command[1]()
    assert told["event"] == "waits" and told["runs"] == {"completed": 4}, "cells are to come"


@pytest.mark.parametrize("target", ["false", "sleep 600"])
def test_a_notifier_that_fails_or_hangs_harms_nothing(
    lab: Lab, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tread_lab.terminal.notify._SECONDS", 0.2)
    assert notified(target, lab, "small", lambda: 0) == 0
    assert "the notification of small failed (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (f"/no/such/command {SECRET}", "no command '/no/such/command'"),
        (f"nothing://me:{SECRET}@host", "makes nothing of this nothing:// URL"),
        (f"mail '{SECRET}", "open quote"),
    ],
)
def test_a_target_that_cannot_be_told_is_refused_at_once(target: str, says: str) -> None:
    pytest.importorskip("apprise")
    with pytest.raises(UserError, match=says) as caught:
        notification_target(target)
    assert SECRET not in str(caught.value)


def test_the_variable_names_a_target_that_ps_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TREAD_LAB_NOTIFY", raising=False)
    assert notification_target(None) is None
    monkeypatch.setenv("TREAD_LAB_NOTIFY", "cat")
    assert notification_target(None) == "cat" and notification_target("true") == "true"


def test_a_driver_that_leaves_at_once_tells_it(
    lab: Lab, command: tuple[str, Callable[[], dict[str, Any]]]
) -> None:
    code = (
        "import sys; from pathlib import Path; from tread_lab.records.lab import Lab\n"
        "from tread_lab.sweep.execution.cluster_heartbeat import leave\n"
        "from tread_lab.terminal.notify import notified\n"
        "notified(sys.argv[1], Lab(Path(sys.argv[2])), 's', lambda: leave('the cluster is lost'))"
    )
    words = [sys.executable, "-c", code, command[0], str(lab.root)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 3
    told = command[1]()
    assert (told["event"], told["message"]) == ("waits", "the cluster is lost")
