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
from tread_lab.tracking.store import (
    QUIET,
    check_store,
    explained,
    identity,
    in_short,
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
        ("htp://host:5000", "is not a store MLflow knows; write sqlite:////path"),
        ("", "no longer writes to the folder"),
        ("sqlite:////", "^cannot read /: "),
    ],
)
def test_what_mlflow_cannot_use_is_refused(uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_store(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://host:5000",
        "https://host",
        "postgresql+psycopg://u:p@host/db",
        "sqlite:///{folder}/deep/mlflow.db",  # which is made later
        "sqlite:///{own}?timeout=3",
    ],
)
def test_what_mlflow_can_use_is_neither_asked_nor_made_yet(
    uri: str, tmp_path: Path, empty_store: Path
) -> None:
    check_store(uri.format(folder=tmp_path, own=empty_store))
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_tables_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE runs (name)")
        database.execute("DROP TABLE runs")
    assert path.stat().st_size > 0
    check_store(f"sqlite:///{path}")


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
    assert in_short(OSError(f"{201 * 'x'}\nmore")) == 197 * "x" + "..."
    assert in_short(OSError(200 * "x")) == 200 * "x"
    assert "secret" not in str(explained("x://me:secret@host", OSError("to x://me:secret@host")))


@pytest.mark.parametrize(
    ("failed", "said"),
    [
        ("exception HTTPConnectionPool(host='h'): Connection refused", "no MLflow server answers;"),
        (
            "timeout exception HTTPConnectionPool: Read timed out.",
            "the MLflow server does not answ",
        ),
    ],
)
def test_a_server_that_is_slow_is_not_called_absent(failed: str, said: str) -> None:
    line = str(explained("http://h", OSError(f"API request to http://h failed with {failed}")))
    assert line.startswith(f"MLflow store http://h: {said}")


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


def test_labs_have_identities_of_their_own(tmp_path: Path) -> None:
    lab, other = Lab(tmp_path / "one"), Lab(tmp_path / "two")
    assert identity(lab) == identity(lab) != identity(other)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_without_a_store_one_is_told_how_to_make_it(lab: Lab) -> None:
    with pytest.raises(UserError, match=r"no MLflow store at .* yet; run a sweep or"):
        ui_command(lab)
    lab.root.mkdir()
    (lab.root / "mlflow.db").write_text("notes " * 100)
    with pytest.raises(UserError, match="is not an MLflow store"):
        ui_command(lab)


def test_a_taken_port_is_one_line(lab: Lab, store: Store) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="choose a --port"):
            ui_command(lab, port=taken.getsockname()[1])
    with pytest.raises(UserError, match="choose a --port"):
        ui_command(lab, port=70_000)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The programs that this process has become, each with its arguments and environment."""
    programs: list[Any] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: programs.append(arguments))
    for name in QUIET:
        monkeypatch.delenv(name, raising=False)
    return programs


def test_the_address_of_the_sweeps_experiment_is_printed_before_it_is_served(
    lab: Lab, store: Store, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    ui(lab, port=port)
    first = capsys.readouterr().out
    assert f"  http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning\n" in first
    for number, name in ((41, "other"), (42, "tread-lab")):
        store.rows("INSERT INTO experiments (experiment_id, name) VALUES (?, ?)", number, name)
    ui(lab, host="0.0.0.0", port=port)
    second = capsys.readouterr().out
    page = "#/experiments/42/runs?workflowType=machine_learning\n"
    assert f"http://0.0.0.0:{port}/{page}" in second
    assert ("no login" in first, "no login" in second) == (False, True)
    program, command, environment = started[1]
    assert [program, *command[:4]] == [sys.executable, sys.executable, "-m", "mlflow", "ui"]
    assert f"--host 0.0.0.0 --port {port} " in " ".join(command)
    assert f"--artifacts-destination file://{lab.root}/mlartifacts" in " ".join(command)
    added = {name: value for name, value in environment.items() if name not in os.environ}
    assert added == {**QUIET, "MLFLOW_BACKEND_STORE_URI": f"sqlite:///{lab.root}/mlflow.db"}


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("https://me:secret@team:5000", "MLflow is served at https://me:***@team:5000\n"),
        (
            "postgresql://me:secret@team/mlflow",
            "MLflow with the runs of postgresql://me:***@team/mlflow; Ctrl-C ends it\n"
            "  http://127.0.0.1:{port}/\n",
        ),
    ],
    ids=["a server is only named", "a database is served from here"],
)
def test_a_password_stands_in_no_line_and_in_no_argument(
    uri: str,
    said: str,
    lab: Lab,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    ui(lab, port=port)
    assert capsys.readouterr().out == said.format(port=port)
    assert len(started) == (not uri.startswith("https"))
    assert "secret" not in str([arguments[1] for arguments in started])
    assert "--artifacts-destination" not in str(started)
