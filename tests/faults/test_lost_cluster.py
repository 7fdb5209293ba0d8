"""A cluster of this machine that loses a worker, a daemon, itself or its driver: all of it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tread_lab.sweep.execution.cluster_heartbeat import command_line, kill

from tests.faults.drivers import DONE, Driver, Zygote, eventually, session
from tests.sweep.plans import carry_out
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.sweep.plan.storage import load_plan

PRELUDE = """
from tests.faults.tricks import without_extras
without_extras()
"""
SWEEP = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: %d, batch: 8}
  execution: {log_every: 5, checkpoint_every: 50}
axes: {route: {start: 0..0, end: 2..2}}
baseline: null
evaluate: [{heldout_loss: {images: 16, levels: 2}}]
"""
DAEMONS = ("gcs_server", "raylet")


def start(zygote: Zygote, folder: Path, *more: str) -> Driver:
    """A driver in a session of its own; it prints to `out` and `err`."""
    out, err = folder / "out", folder / "err"
    command = ("sweep", "one.yaml", "--no-mlflow", "--device=cpu", *more)
    return zygote.start(folder, *command, out=out, err=err, prelude=PRELUDE)


@contextmanager
def driving(zygote: Zygote, folder: Path, steps: int) -> Iterator[Driver]:
    """A driver whose only run is training."""
    pytest.importorskip("ray")
    (folder / "one.yaml").write_text(SWEEP % steps)
    logs = (folder / "lab").glob
    with ended(start(zygote, folder)) as driver:
        driver.until(lambda: any(logs("runs/*/log.jsonl")), 280)
        yield driver


@contextmanager
def ended(driver: Driver) -> Iterator[Driver]:
    """A driver that ends with the block, and with it all processes of its cluster."""
    try:
        yield driver
    finally:
        driver.kill()
        for pid in offspring(driver.pid):
            kill(pid)


def offspring(driver: int) -> dict[int, str]:
    """The processes of a driver's local cluster that live, by name; all are of its session."""
    names = {pid: command_line(pid).split(b"\0")[0].decode() for pid in session(driver)}
    return {pid: n.rpartition("/")[2].rstrip() for pid, n in names.items() if pid != driver}


def working(driver: int) -> dict[int, str]:
    """Those that hold a device or train: Ray's idle agents take longer to notice."""
    return {pid: name for pid, name in offspring(driver).items() if not name.endswith("Agent")}


@pytest.fixture
def lost(tmp_path: Path, zygote: Zygote) -> RunFolder:
    """A run of which a worker was killed, then the cluster; `printed` is what its driver said."""
    lab = Lab(tmp_path / "lab")
    with driving(zygote, tmp_path, steps=300) as driver:
        (path,) = (tmp_path / "lab" / "runs").iterdir()
        run = lab.run(path.name)
        kill(run.attempts()[-1].pid)
        eventually(lambda: len(run.attempts()) == 2, 100)
        daemons = {pid: n for pid, n in offspring(driver.pid).items() if n in DAEMONS}
        assert set(daemons.values()) == set(DAEMONS)
        assert not [c for c in map(command_line, offspring(driver.pid)) if b"monitor.py" in c]
        for pid in daemons:
            kill(pid)
        assert driver.wait(60) == 3, printed(tmp_path)
        eventually(lambda: not working(driver.pid), 30)
    assert driver.said() == ""
    # A killed process may be a zombie some milliseconds before the kernel frees its locks.
    eventually(lambda: run.state() == "interrupted", 5)
    return run


@pytest.mark.task(5)
@pytest.mark.slow
@pytest.mark.fault(
    9,
    survived="the driver ends with one line and exit code 3; the trial is interrupted, not failed",
)
def test_a_killed_worker_is_replaced_and_a_lost_cluster_ends_the_driver_each_in_one_line(
    lost: RunFolder, tmp_path: Path
) -> None:
    screen = printed(tmp_path)
    killed, *more = (line for line in screen.splitlines() if "was killed" in line)
    assert killed.endswith("was killed; the run goes back to the queue, with 2 more of 3 tries")
    assert not more and "tread-lab: the Ray cluster is lost" in screen, screen
    assert "Traceback" not in screen and "ray." not in screen, screen
    assert [a.ended for a in lost.attempts()] == ["died", ""]  # which the next driver ends


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.fault(
    9,
    survived="the same command on a fresh cluster completes the trial from its last checkpoint,"
    " although one of its two processes there is killed",
)
def test_on_a_fresh_cluster_two_processes_complete_what_one_began(
    lost: RunFolder, tmp_path: Path, zygote: Zygote
) -> None:
    lab, calm, logged = Lab(tmp_path / "lab"), Lab(tmp_path / "calm"), len(lost.entries())
    with ended(start(zygote, tmp_path, "--processes=2")) as again:
        again.until(lambda: len(lost.entries()) > logged, 280)
        (other,) = (p for p in offspring(again.pid) if b"engine.follow" in command_line(p))
        kill(other)
        tasks = load_plan(lab.sweep("one")).tasks
        carry_out(calm, *tasks)
        assert again.wait(280) == DONE, printed(tmp_path)
    assert [(a.ended, a.devices) for a in lost.attempts()] == [
        ("died", 1),
        ("lost", 1),
        ("died", 2),
        ("completed", 2),
    ]
    found, expected = (
        [e.value for e in place.run(lost.name).entries() if e.key == "train/loss"]
        for place in (lab, calm)
    )
    # Steps multiply the rounding of a sum in two parts; 50 of them agree within 1e-6 elsewhere.
    assert found == pytest.approx(expected, rel=5e-5) and len(found) == 60


def printed(folder: Path) -> str:
    """What a driver in this folder has printed to stderr so far."""
    return (folder / "err").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_whose_driver_is_killed_ends_too(tmp_path: Path, zygote: Zygote) -> None:
    with driving(zygote, tmp_path, steps=100000) as driver:
        assert len(offspring(driver.pid)) >= 3
        driver.signal()
        eventually(lambda: not working(driver.pid), 30)
