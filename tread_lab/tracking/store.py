"""A lab's MLflow store: where it is, one writer at a time, and the server that shows it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from tread_lab.config.errors import UserError
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.locks import exclusive, is_held

WAIT = 300.0  # seconds for another writer
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # workers for features nobody uses here
}


def shown(text: str) -> str:
    """Return a URI, or a text with one, without passwords."""
    masked = re.sub(r"(://[^/@:\s]*):\S*@", r"\1:***@", text)
    return re.sub(r"([?&]\w*(?:password|secret|token)\w*=)[^&\s]*", r"\1***", masked, flags=re.I)


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a SQLite store, or `None`."""
    if not uri.startswith("sqlite:///"):
        return None
    return Path(uri.removeprefix("sqlite:///").partition("?")[0]).absolute()


def check_store(uri: str) -> None:
    """Refuse folders, which MLflow no longer supports."""
    if "://" not in uri or uri.startswith("file:"):
        raise UserError(
            f"MLFLOW_TRACKING_URI: must be sqlite:////path/to/mlflow.db or http://host:5000, got"
            f" {shown(uri)!r}"
        )


@contextlib.contextmanager
def one_writer(lab: Lab) -> Iterator[None]:
    """Hold the write lock of this lab's store; others wait up to five minutes.

    Raises:
        Busy: another process holds the lock for longer.
    """
    lock, deadline = lab.root / ".mlflow.lock", time.monotonic() + WAIT
    while is_held(lock) and time.monotonic() < deadline:
        time.sleep(0.1)
    with exclusive(lock, "the MLflow view of this lab"):
        yield


def identity(lab: Lab) -> str:
    """Return the permanent identifier of this lab, for labs that share a store."""
    path = lab.root / ".identity"
    if not path.exists():
        write_text(path, f"{uuid.uuid4().hex[:12]}\n")
    return path.read_text("utf-8").strip()


def ui(lab: Lab, *, host: str = "127.0.0.1", port: int = 5000) -> None:
    """Print the address of each sweep's comparison and become MLflow's server.

    If the store is a server, only print the addresses.

    Raises:
        UserError: the port is taken.
    """
    from tread_lab.tracking.mlflow_tracker import addresses  # imports MLflow

    uri = lab.mlflow_uri
    served = uri.startswith(("http://", "https://"))
    if not served:
        check_port(host, port)
    print(f"MLflow of {shown(uri)}" + "; Ctrl-C ends it" * (not served))
    for name, address in addresses(uri).items():
        print(
            f"  {name}: {shown(uri) if served else f'http://{host}:{port}'}/{address}", flush=True
        )
    if served:
        return
    if host not in ("127.0.0.1", "localhost", "::1"):
        print("no login: anyone who reaches this machine can read and change the runs", flush=True)
    command = [sys.executable, "-m", "mlflow", "ui", "--host", host, "--port", str(port)]
    command += ["--workers", "1", "--uvicorn-opts=--log-level=warning"]
    if path := sqlite_path(uri):
        command += ["--artifacts-destination", (path.parent / "mlartifacts").as_uri()]
    # Everybody on a machine may read arguments, and a URI may hold a password.
    os.execve(command[0], command, {**os.environ, **QUIET, "MLFLOW_BACKEND_STORE_URI": uri})


def check_port(host: str, port: int) -> None:
    """Refuse a port on which this process cannot listen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"cannot listen on {host}:{port} ({reason}). Try another --port."
            ) from None
