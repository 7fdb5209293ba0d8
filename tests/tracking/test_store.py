"""Claims about a lab's MLflow store and the command that shows it."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import pytest

from tests.tracking.conftest import Store, Sweeps
from tread_lab.config import UserError
from tread_lab.records.lab import Lab
from tread_lab.tracking.store import (
    QUIET,
    check_store,
    one_writer,
    shown,
    ui,
)


@pytest.mark.parametrize("uri", ["./mlruns", "file:///mlruns", ""])
def test_folders_are_refused(uri: str) -> None:
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI: must be"):
        check_store(uri)


def test_passwords_are_not_shown() -> None:
    assert shown("http://me:secret@host:1/x") == "http://me:***@host:1/x"
    assert shown("postgresql://me:se@cr/et@host/x y") == "postgresql://me:***@host/x y"
    assert shown("mysql://host/x?sslpassword=secret&a=1") == "mysql://host/x?sslpassword=***&a=1"
    assert shown("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"


def test_second_writer_waits(lab: Lab) -> None:
    order: list[str] = []

    def second() -> None:
        with one_writer(lab):
            order.append("second")

    waiting = threading.Thread(target=second)
    with one_writer(lab):
        waiting.start()
        waiting.join(0.5)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that this process has become, each with its arguments and environment."""
    programs: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: programs.append(arguments))
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    return programs


def test_comparisons_are_printed_before_they_are_served(
    lab: Lab, sweeps: Sweeps, store: Store, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps.complete()
    sweeps.sync()
    port = free_port()
    ui(lab, host="0.0.0.0", port=port)
    said = capsys.readouterr().out
    assert f"placement: http://0.0.0.0:{port}/#/experiments/1/runs?viewStateShareKey=" in said
    assert "no login" in said
    ((_, command, environment),) = started
    assert f"--host 0.0.0.0 --port {port} " in " ".join(command)
    assert f"--artifacts-destination file://{lab.root}/mlartifacts" in " ".join(command)
    assert "sqlite" not in " ".join(command) and "MLFLOW_BACKEND_STORE_URI" in environment
