"""Claims about a lab's MLflow store and the command that shows it."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.conftest import Store
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.specs import UserError
from tread_lab.tracking import store as module
from tread_lab.tracking.store import (
    check_store,
    explained,
    identity,
    one_writer,
    shown,
    sqlite_path,
    ui,
    ui_command,
)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("./mlruns", "no longer writes to the folder './mlruns'"),
        ("file:///tmp/mlruns", "no longer writes to the folder"),
        ("htp://host:5000", "is not a store MLflow knows; write sqlite:////path"),
        ("", "no longer writes to the folder"),
    ],
)
def test_what_mlflow_cannot_use_is_refused(uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_store(uri)


@pytest.mark.parametrize(
    "uri", ["http://host:5000", "https://host", "postgresql+psycopg://u:p@host/db"]
)
def test_servers_are_not_asked_yet(uri: str) -> None:
    check_store(uri)


def test_a_file_to_be_made_is_fine_and_not_made(tmp_path: Path) -> None:
    check_store(f"sqlite:///{tmp_path}/deep/mlflow.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        check_store(f"sqlite:///{tmp_path}")


def test_a_database_without_tables_is_fine_and_a_foreign_one_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (name)")
        with pytest.raises(UserError, match="is another program's database, not MLflow's"):
            check_store(f"sqlite:///{path}")
        database.execute("DROP TABLE runs")
    assert path.stat().st_size > 0
    check_store(f"sqlite:///{path}")


def test_mlflows_own_file_passes(empty_store: Path) -> None:
    check_store(f"sqlite:///{empty_store}?timeout=3")


KILLED_WRITER = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA cache_size = 1")
database.execute("CREATE TABLE big (x)")
database.executemany("INSERT INTO big VALUES (?)", [(b"x" * 4000,)] * 200)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_store_whose_writer_was_killed_passes_and_recovers(lab: Lab, store: Store) -> None:
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(store.path)], check=False)
    journal = store.path.with_name("mlflow.db-journal")
    assert journal.stat().st_size > 0
    before = store.path.read_bytes()
    check_store(lab.mlflow_uri)
    ui_command(lab, port=0)
    assert journal.exists() and store.path.read_bytes() == before  # only looked at
    assert store.count("big") == 0


def test_passwords_are_not_shown() -> None:
    assert shown("http://me:secret@host:1/x") == "http://me:***@host:1/x"
    assert shown("postgresql://me:se@cr/et@host/x y") == "postgresql://me:***@host/x y"
    assert shown("mysql://host/x?sslpassword=secret&a=1") == "mysql://host/x?sslpassword=***&a=1"
    assert shown("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
    assert "secret" not in str(explained("x://me:secret@host", OSError("to x://me:secret@host")))


def test_paths_of_sqlite_files() -> None:
    assert sqlite_path("sqlite:////a/b.db?timeout=3") == Path("/a/b.db")
    assert sqlite_path("sqlite:///b.db") == Path.cwd() / "b.db"
    assert sqlite_path("http://a") is None


def test_a_second_writer_waits_for_the_first(lab: Lab) -> None:
    order: list[str] = []

    def second() -> None:
        with one_writer(lab, lab.mlflow_uri):
            order.append("second")

    waiting = threading.Thread(target=second)
    with one_writer(lab, lab.mlflow_uri):
        waiting.start()
        waiting.join(0.5)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def test_waiting_has_an_end(lab: Lab) -> None:
    with one_writer(lab, "http://host"), pytest.raises(Busy, match="in use by another process"):
        with one_writer(lab, "http://host", wait=0):
            pass


def test_a_lab_keeps_its_identity_when_it_moves(lab: Lab, tmp_path: Path) -> None:
    name = identity(lab)
    assert identity(lab) == name
    lab.root.rename(tmp_path / "moved")
    assert identity(Lab(tmp_path / "moved")) == name
    assert identity(Lab(tmp_path / "other")) != name


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


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_is_only_named(
    scheme: str, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{scheme}://me:secret@team:5000")
    ui(lab)
    assert capsys.readouterr().out == f"MLflow is served at {scheme}://me:***@team:5000\n"


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


def test_the_pages_open_at_the_runs_of_the_experiment(
    lab: Lab, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.rows("INSERT INTO experiments (experiment_id, name) VALUES (41, 'other')")
    store.rows("INSERT INTO experiments (experiment_id, name) VALUES (42, 'tread-lab')")
    monkeypatch.setattr(os, "execve", lambda *arguments: None)
    ui(lab, port=free_port())
    assert "/#/experiments/42/runs?workflowType=machine_learning\n" in capsys.readouterr().out


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
