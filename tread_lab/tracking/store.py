"""A lab's MLflow store: where it is, one writer at a time, and the command that shows it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tread_lab.records.durable import disk_error, write_text
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive
from tread_lab.specs.errors import UserError, first_line

EXPERIMENT = "tread-lab"
OTHER_STORE = "set MLFLOW_TRACKING_URI to another store, or unset it to use the lab's own"
SCHEMES = "sqlite:////path/to/mlflow.db or http://host:5000"
DATABASES = ("postgresql", "mysql", "mssql", "databricks")


def shown(uri: str) -> str:
    """`uri`, or a text with one, without the passwords that it may carry."""
    masked = re.sub(r"(://[^/@:\s]*):\S*@", r"\1:***@", uri)
    return re.sub(r"([?&]\w*(?:password|secret|token)\w*=)[^&\s]*", r"\1***", masked, flags=re.I)


def sqlite_path(uri: str) -> Path | None:
    """The file of a SQLite store, `None` for any other kind of store."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def check_store(uri: str) -> None:
    """Refuse what is not an MLflow store, without changing it; an absent SQLite file is fine.

    MLflow itself tries a file that is no database for more than a minute, and adds its own tables
    to any database that is one.
    """
    path = sqlite_path(uri)
    if path is not None:
        _check_sqlite(path)
        return
    scheme = uri.partition("://")[0].partition("+")[0] if "://" in uri else ""
    if scheme in ("", "file"):
        raise UserError(
            f"MLflow no longer writes to the folder {shown(uri)!r}; write {SCHEMES} in"
            " MLFLOW_TRACKING_URI, or unset it"
        )
    if scheme not in ("http", "https", *DATABASES):
        raise UserError(f"{shown(uri)!r} is not a store MLflow knows; write {SCHEMES}")


@contextlib.contextmanager
def one_writer(lab: Lab, uri: str, *, wait: float = 300.0) -> Iterator[None]:
    """Be the only process that writes this lab's view; others wait, at most `wait` seconds.

    Raises:
        Busy: another process is at it for longer than that.
    """
    path = sqlite_path(uri)
    lock = path.with_name(f".{path.name}.lock") if path else lab.root / ".mlflow.lock"
    deadline = time.monotonic() + wait
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive(lock, f"MLflow store {shown(uri)}"))
                break
            except Busy:
                if time.monotonic() > deadline:
                    raise
        yield


def identity(lab: Lab) -> str:
    """Return a name of this lab, made once: it tells labs apart that share a store."""
    path = lab.root / ".identity"
    if not path.exists():
        write_text(path, f"{uuid.uuid4().hex[:12]}\n")
    return path.read_text("utf-8").strip()


REMEDIES = {
    "out-of-date database schema": "another version of MLflow made it; `mlflow db upgrade {uri}`",
    "Can't locate revision": "a newer version of MLflow made it; install that version",
    "database is locked": "another program holds it; close that and sync again",
    "readonly database": "it may not be written; " + OTHER_STORE,
    "disk is full": "make room and sync again",
    "No space left": "make room and sync again",
    "error code 404": "what answers there is not an MLflow server; " + OTHER_STORE,
    "error code 403": "the server refuses; set MLFLOW_TRACKING_USERNAME and _PASSWORD",
    "error code 401": "the server refuses; set MLFLOW_TRACKING_USERNAME and _PASSWORD",
    "timed out": "the MLflow server does not answer in time; sync again later",
    "API request to http": "no MLflow server answers; start it and sync again, or " + OTHER_STORE,
    "No module named": "install the driver of that database, or " + OTHER_STORE,
}


def explained(uri: str, error: Exception) -> UserError:
    """The one line that an error of MLflow or of its database becomes."""
    text = str(error)
    remedy = next((remedy for sign, remedy in REMEDIES.items() if sign in text), None)
    if remedy is None:
        remedy = f"{in_short(error)}; sync again, the records hold everything"
    return UserError(f"MLflow store {shown(uri)}: {remedy.replace('{uri}', shown(uri))}")


def in_short(error: Exception) -> str:
    """The first line of an error, shortened, no password in it."""
    line = shown(first_line(error))
    return line if len(line) <= 200 else line[:197] + "..."


def _check_sqlite(path: Path) -> None:
    try:
        if not path.exists() or path.stat().st_size == 0:
            return
        tables = _tables(path)
    except OSError as error:
        raise disk_error(error, path) from error
    except sqlite3.OperationalError as error:
        raise UserError(f"cannot read {path}: {error}; {OTHER_STORE}") from None
    except sqlite3.DatabaseError:
        raise UserError(f"{path} is not an MLflow store (not a database); {OTHER_STORE}") from None
    if tables and not {"alembic_version", "experiments", "runs", "metrics"} <= tables:
        raise UserError(f"{path} is another program's database, not MLflow's; {OTHER_STORE}")


def _tables(path: Path) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    try:
        rows = read_sqlite(path, query)
    except sqlite3.OperationalError:
        # A writer was killed: the file is to be repaired by who writes it next, not by a look.
        rows = read_sqlite(path, query, mode="immutable=1")
    return {name for (name,) in rows}


def read_sqlite(path: Path, query: str, *values: str, mode: str = "mode=ro") -> list[Any]:
    """The rows of a query, the file left as it is."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)) as database:
        return database.execute(query, values).fetchall()


QUIET: Mapping[str, str] = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # workers for features nobody uses here
}
STORE = "MLFLOW_BACKEND_STORE_URI"
QUIET_SERVER = "--uvicorn-opts=--log-level=warning"


def ui_command(lab: Lab, *, host: str = "127.0.0.1", port: int = 5000) -> list[str]:
    """The arguments that serve the lab's store, which `STORE` in the environment names.

    Everybody on a machine may read arguments, and a URI may hold a password.

    Raises:
        UserError: there is no store yet, it is not MLflow's, or the port is taken.
    """
    uri = lab.mlflow_uri
    check_store(uri)
    path = sqlite_path(uri)
    if path is not None and not path.exists():
        raise UserError(f"no MLflow store at {path} yet; run a sweep or `tread-lab sync SWEEP`")
    _check_port(host, port)
    command = [sys.executable, "-m", "mlflow", "ui"]
    if path is not None:
        command += ["--artifacts-destination", (path.parent / "mlartifacts").as_uri()]
    return [*command, "--host", host, "--port", str(port), "--workers", "1", QUIET_SERVER]


def ui(lab: Lab, *, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Print the address and become the server; a store that is a server is only named."""
    uri = lab.mlflow_uri
    if uri.startswith(("http://", "https://")):
        print(f"MLflow is served at {shown(uri)}")
        return
    command = ui_command(lab, host=host, port=port)
    print(f"MLflow with the runs of {shown(uri)}; Ctrl-C ends it")
    if host not in ("127.0.0.1", "localhost", "::1"):
        print("no login: whoever reaches this machine can read and change them")
    print(f"  http://{host}:{port}/{_runs_page(uri)}", flush=True)
    os.execve(command[0], command, {**os.environ, **QUIET, STORE: uri})


def _runs_page(uri: str) -> str:
    """The page of the experiment's runs, where it can be told; else the first page."""
    path = sqlite_path(uri)
    if path is None:
        return ""
    found: list[Any] = []
    with contextlib.suppress(sqlite3.OperationalError):  # a writer was killed: any page will do
        query = "SELECT experiment_id FROM experiments WHERE name = ?"
        found = read_sqlite(path, query, EXPERIMENT)
    page = f"experiments/{found[0][0]}/runs" if found else "experiments"
    return f"#/{page}?workflowType=machine_learning"


def _check_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"cannot listen on {host}:{port} ({reason}); choose a --port") from None
