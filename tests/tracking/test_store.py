"""A store is checked before it is touched, and written by one process at a time."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.tracking.conftest import Store
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy
from tread_lab.specs import UserError
from tread_lab.tracking.store import (
    check_store,
    explained,
    identity,
    one_writer,
    shown,
    sqlite_path,
)
from tread_lab.tracking.ui import ui_command


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
