"""The command that opens a lab's MLflow store in MLflow's own pages, on this machine alone."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError
from tread_lab.tracking.store import EXPERIMENT, check_store, read_sqlite, shown, sqlite_path

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
