"""A tracking server that dies in the middle of a sweep loses nothing and disturbs nobody."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.conftest import SAMPLES, Sweeps
from tests.tracking.test_store import free_port
from tread_lab.config import RunSpec, UserError
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import mlflow_name


@contextlib.contextmanager
def server(
    folder: Path, port: int, option: str = "", **more: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A real MLflow server on loopback, killed at the end; its store is a SQLite file.

    Args:
        option: one more of its command.
        more: environment of the server.
    """
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += [option] if option else []
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        **more,
    }
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    try:
        while not answers(port):
            assert process.poll() is None
            time.sleep(0.2)
        yield process
    finally:
        kill(process)
        process.wait()


def kill(server: subprocess.Popen[bytes]) -> None:
    """SIGKILL a server and its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two servers, which a busy machine is slow to start
@pytest.mark.fault(
    14,
    survived="the next sync completes; every metric, parameter and file equals the records",
)
def test_a_server_killed_in_the_middle_of_a_sync(
    lab: Lab, sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.tracking.mlflow_tracker import SENT, MlflowClient, MlflowTracker

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "600")  # a busy machine answers late
    specs, port = sweeps.complete(), free_port()
    tracker = MlflowTracker(lab, f"http://127.0.0.1:{port}")
    calls, send = itertools.count(1), MlflowClient.log_batch
    with server(tmp_path, port) as process, monkeypatch.context() as patch:

        def killing(*arguments: Any, **options: Any) -> None:
            if next(calls) == 2:
                kill(process)
            send(*arguments, **options)

        patch.setattr(MlflowClient, "log_batch", killing)
        with pytest.raises(UserError, match="no MLflow server answers"):
            tracker.sync("placement")
    with server(tmp_path, port):
        client = MlflowClient(f"http://127.0.0.1:{port}")
        (experiment,) = client.search_experiments(filter_string="name = 'placement'")
        begun = client.search_runs([experiment.experiment_id])
        assert begun and len([run for run in begun if SENT in run.data.tags]) < len(specs)
        tracker.sync("placement")
        assert tracker.sync("placement") == {"unchanged": len(specs)}
        stored = client.search_runs([experiment.experiment_id])
        found = {run.data.tags["signature"]: as_stored(client, run) for run in stored}
    assert len(stored) == len(specs)
    assert found == as_recorded(lab, specs)


def as_recorded(lab: Lab, specs: list[RunSpec]) -> dict[str, tuple[Any, ...]]:
    """Run -> its numbers, its parameters and its files, by the records alone."""
    from tread_lab.tracking.shown_run import ShownSweep

    found = {}
    for one in ShownSweep(lab, lab.sweep("placement").plan()).runs:
        numbers = [(key, step, value) for key, value, _, step in one.curves()]
        numbers += [(mlflow_name(name), 40, value) for name, value in one.metrics.items()]
        params = {mlflow_name(name): str(value) for name, value in one.settings.items()}
        grid = one.folder.evaluation(SAMPLES).path / "grid.png"
        files = {"samples_1k.png": grid, "spec.yaml": one.folder.path / "spec.yaml"}
        content = {name: path.read_bytes() for name, path in files.items()}
        found[one.folder.name] = sorted(numbers), params, content
    return found


def as_stored(client: Any, run: Any) -> tuple[Any, ...]:
    """The same of a run in the store."""
    name = run.info.run_id
    history = [m for key in run.data.metrics for m in client.get_metric_history(name, key)]
    with tempfile.TemporaryDirectory() as folder:
        client.download_artifacts(name, "", folder)
        files = {own: Path(folder, own).read_bytes() for own in ("samples_1k.png", "spec.yaml")}
    return sorted((m.key, m.step, m.value) for m in history), run.data.params, files
