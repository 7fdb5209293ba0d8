"""A driver without its cluster, and a cluster without its driver: neither stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tread_lab.records.layout import Lab

pytestmark = pytest.mark.slow

DRIVER = """
from tread_lab.sweep import lifeline
lifeline._PATIENCE = 4.0
from tread_lab.cli import run
run()
"""
SWEEP = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 100000, batch: 8}
  execution: {log_every: 5, checkpoint_every: 50}
axes: {route: {start: 0..0, end: 2..2}}
baseline: null
"""
DAEMONS = ("gcs_server", "raylet")


@contextmanager
def driving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver whose first run is training."""
    pytest.importorskip("ray")
    (folder / "endless.yaml").write_text(SWEEP)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, "sweep", "endless.yaml", "--no-mlflow", "--device", "cpu"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            logs = (folder / "lab").glob
            wait_until(lambda: any(logs("runs/*/log.jsonl")) or driver.poll() is not None, 280)
            assert driver.poll() is None, driver.stderr and driver.stderr.read()
            yield driver
        finally:
            driver.kill()
            for pid in offspring(driver.pid):
                os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.1)


def offspring(driver: int) -> dict[int, str]:
    """The processes of a driver's local cluster that live, by name; all are of its session."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            name = (path / "cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            continue
        if int(session) == driver and state != "Z" and int(path.name) != driver:
            found[int(path.name)] = name.rpartition("/")[2].rstrip()
    return found


def working(driver: int) -> dict[int, str]:
    """Those that hold a device or train: Ray's idle agents take longer to notice."""
    return {pid: name for pid, name in offspring(driver).items() if not name.endswith("Agent")}


@pytest.mark.fault(
    9,
    done="SIGKILL of all daemons of the Ray cluster while a trial trains",
    survived="the driver ends with one line and exit code 3; the trial is interrupted, not failed",
)
def test_a_driver_whose_daemons_are_killed_gives_up_with_one_line(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        daemons = {pid: n for pid, n in offspring(driver.pid).items() if n in DAEMONS}
        assert set(daemons.values()) == set(DAEMONS)
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)
        _, errors = driver.communicate(timeout=60)
        wait_until(lambda: not working(driver.pid), 30)
    assert driver.returncode == 3, errors
    assert "tread-lab: the Ray cluster is lost" in errors and "Traceback" not in errors
    (run,) = (tmp_path / "lab" / "runs").iterdir()
    assert Lab(tmp_path / "lab").run(run.name).state() == "interrupted"


@pytest.mark.skipif("TREAD_LAB_LONG" not in os.environ, reason="half a minute; TREAD_LAB_LONG=1")
def test_a_cluster_whose_driver_is_killed_ends_too(tmp_path: Path) -> None:
    with driving(tmp_path) as driver:
        assert len(offspring(driver.pid)) >= 3
        os.kill(driver.pid, signal.SIGKILL)
        wait_until(lambda: not working(driver.pid), 30)
