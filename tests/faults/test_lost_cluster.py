"""A driver on Ray is stopped, then loses its cluster: records are whole, and the run continues."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import DONE, STOPPED, Driver, Place, Zygote, eventually, session
from tests.sweep.plans import carry_out
from tread_lab.records.lab import Lab
from tread_lab.sweep.plan import load_plan

SWEEP = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: 400, batch: 8}
  execution: {log_every: 5, checkpoint_every: 50}
axes: {route: {start: 0..0, end: 2..2}}
baseline: null
evaluate: [{heldout_loss: {images: 16, levels: 2}}]
"""
DAEMONS = ("gcs_server", "raylet")


@pytest.mark.task(3)
@pytest.mark.slow
@pytest.mark.fault(
    9,
    survived="the run is interrupted, not failed; the same command completes it from its last"
    " checkpoint, bitwise as if nothing had happened",
)
def test_run_survives_ctrl_c_and_a_lost_cluster(zygote: Zygote, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    place = Place(zygote, tmp_path).write(SWEEP)
    ray = {"executor": "ray", "RAY_AUTH_TOKEN_PATH": os.environ["RAY_AUTH_TOKEN_PATH"]}
    with place.sweep("--device=cpu", **ray) as driver:
        trains(driver, place, 20)
        driver.signal(signal.SIGINT)
        assert driver.wait() == STOPPED, driver.said()
    (run,) = place.lab.runs()
    assert [attempt.ended for attempt in run.attempts()] == ["interrupted"]
    with place.sweep("--device=cpu", **ray) as driver:
        trains(driver, place, run.step())
        for pid in session(driver.pid):
            if os.path.basename(command(pid)) in DAEMONS:  # noqa: PTH119
                os.kill(pid, signal.SIGKILL)
        assert driver.wait(200) != DONE, driver.said()
    eventually(lambda: run.state() == "interrupted")
    place.finish("--device=cpu")
    assert [a.ended for a in run.attempts()] == ["interrupted", "died", "completed"]
    calm = Lab(tmp_path / "calm")
    carry_out(calm, *load_plan(place.lab.sweep("small")).tasks)
    assert outcome(calm) == outcome(place.lab)


def trains(driver: Driver, place: Place, step: int) -> None:
    """Wait until the only run has logged more than `step` steps."""
    driver.until(lambda: any(run.step() > step for run in place.lab.runs()), 280)


def command(pid: int) -> str:
    """The program of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    except OSError:
        return ""
