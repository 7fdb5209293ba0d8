"""The pages open on the right store, on this machine alone."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.conftest import Store
from tread_lab.records.lab import Lab
from tread_lab.specs import UserError
from tread_lab.tracking import ui as module
from tread_lab.tracking.ui import ui, ui_command


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_command_serves_the_labs_store_on_loopback(lab: Lab, store: Store) -> None:
    command = ui_command(lab, port=free_port())
    assert command[:4] == [sys.executable, "-m", "mlflow", "ui"]
    options = dict(zip(command[4::2], command[5::2]))
    assert options["--host"] == "127.0.0.1"
    assert not any("security" in part for part in command)


def test_the_address_is_printed_before_the_server_takes_over(
    lab: Lab, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    port = free_port()
    ui(lab, port=port)
    (program, command, environment) = started[0]
    assert program == command[0] == sys.executable
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert environment["MLFLOW_BACKEND_STORE_URI"] == lab.mlflow_uri
    assert lab.mlflow_uri not in command  # which may hold a password
    address = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
    assert address in capsys.readouterr().out


@pytest.mark.parametrize(("host", "open_to_all"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_pages_for_other_machines_say_that_there_is_no_login(
    host: str,
    open_to_all: bool,
    lab: Lab,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "execve", lambda *arguments: None)
    ui(lab, host=host, port=free_port())
    assert ("no login" in capsys.readouterr().out) is open_to_all


def test_a_server_is_only_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@team:5000")
    ui(lab)
    assert capsys.readouterr().out == "MLflow is served at http://me:***@team:5000\n"


def test_no_store_yet_says_how_to_make_one(lab: Lab) -> None:
    with pytest.raises(UserError, match=r"no MLflow store at .* yet; run a sweep or"):
        ui_command(lab)


def test_a_taken_port_is_one_line(lab: Lab, store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose a --port"):
            ui_command(lab, port=taken.getsockname()[1])
    with pytest.raises(UserError, match="choose a --port"):
        ui_command(lab, port=70_000)


def test_a_file_that_is_no_store_is_not_opened(lab: Lab, tmp_path: Path) -> None:
    lab.root.mkdir()
    (lab.root / "mlflow.db").write_text("notes " * 100)
    with pytest.raises(UserError, match="is not an MLflow store"):
        ui_command(lab)


def test_the_server_has_these_arguments_and_settings(
    lab: Lab, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probed: list[Any] = []
    started: list[Any] = []
    monkeypatch.setattr(module, "_check_port", lambda host, port: probed.append((host, port)))
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    ui(lab)
    ui(lab, host="0.0.0.0", port=7)
    ui_command(lab)
    assert probed == [("127.0.0.1", 5000), ("0.0.0.0", 7), ("127.0.0.1", 5000)]
    place = f"file://{lab.root}/mlartifacts"
    assert started[1][1][2:] == [
        "mlflow", "ui", "--artifacts-destination", place,
        "--host", "0.0.0.0", "--port", "7", "--workers", "1",
        "--uvicorn-opts=--log-level=warning",
    ]  # fmt: skip
    assert {name: value for name, value in started[0][2].items() if name not in os.environ} == {
        name: value
        for name, value in {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PYTHONWARNINGS": "ignore",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{lab.root}/mlflow.db",
        }.items()
        if name not in os.environ
    }
    assert started[0][2]["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert "http://0.0.0.0:7/#/experiments" in capsys.readouterr().out


def test_the_pages_open_at_the_runs_of_the_experiment(
    lab: Lab, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.rows("INSERT INTO experiments (experiment_id, name) VALUES (41, 'other')")
    store.rows("INSERT INTO experiments (experiment_id, name) VALUES (42, 'tread-lab')")
    monkeypatch.setattr(os, "execve", lambda *arguments: None)
    ui(lab, port=free_port())
    assert "/#/experiments/42/runs?workflowType=machine_learning\n" in capsys.readouterr().out
