"""A tracking server that dies in the middle of a sweep loses nothing and disturbs nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.long import LONG
from tests.tracking.conftest import Store, Sweeps
from tests.tracking.test_store import free_port
from tests.tracking.test_tracker import eventually
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.tracking.tracker import LiveSync


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """A real MLflow server on loopback, killed at the end."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.mark.slow
@LONG  # a whole sweep meets such a server in tests/faults/test_mlflow.py
def test_a_server_killed_and_started_again(lab: Lab, sweeps: Sweeps, tmp_path: Path) -> None:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    port = free_port()
    tracker = MlflowTracker(lab, f"http://127.0.0.1:{port}")
    store = Store(tmp_path / "server.db")
    specs = sweeps.plan(routes=[(0, 2), (1, 4), (2, 5)])
    with LiveSync(lambda: tracker, "placement", every=0.2) as live:
        eventually(lambda: live.error is not None, 60)  # it is down at the start
        sweeps.finish(specs[0])
        with server(tmp_path, port):
            eventually(lambda: live.error is None and live.report is not None, 60)
            sweeps.finish(specs[1])
            sweeps.log(specs[2], 5, 20)
        eventually(lambda: live.error is not None, 60)  # it was killed in the middle
        before = time.monotonic()
        sweeps.log(specs[2], 25, 40).finish(RunState.COMPLETED, step=40)
        sweeps.measure(specs[2])
        assert time.monotonic() - before < 5  # nobody waits for it
    assert live.error is not None and "no MLflow server answers" in live.error
    with server(tmp_path, port):
        sweeps.finish(specs[3])
        tracker.sync("placement")
        assert tracker.sync("placement").unchanged == 5
    assert set(store.statuses().values()) == {"FINISHED"}
    assert store.count("runs") == len(store.runs()) == 5
    keys = store.rows("SELECT run_uuid, key, step FROM metrics")
    assert len(keys) == len(set(keys))
    logged = sum(len(lab.run_of(spec).entries()) for spec in specs)
    curves = "key IN ('train/loss', 'train/images_per_s')"
    assert store.rows(f"SELECT count(*) FROM metrics WHERE {curves}") == [(logged,)]
    assert list((tmp_path / "artifacts").rglob("grid.png"))
