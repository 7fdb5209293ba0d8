"""A run on Ray that is short of memory and killed, beside a parent and its children."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import eventually
from tests.sweep.plans import carry_out, tiny
from tests.sweep.trial.test_task import family_plan
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report

pytestmark = pytest.mark.slow


# A rate that fails once, while the file `full` lies beside it.
CROWDED = """
from pathlib import Path

from tread_lab.engine.optimizer import SCHEDULES


@SCHEDULES.register("crowded")
def crowded(done):
    try:
        Path(__file__).with_name("full").unlink()
    except FileNotFoundError:
        return 1.0
    raise RuntimeError("once")
"""


@pytest.mark.task(5)
@pytest.mark.fault(
    4,
    survived="another worker takes the trial up at its last checkpoint; losses and weights equal"
    " those of a trial that nobody killed, bitwise",
)
def test_a_run_without_luck_completes_and_so_do_the_others(
    lab: Lab, tmp_path: Path, crowded: Path
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.executors import TrialResources
    from tread_lab.sweep.execution.ray_cluster import cluster
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    unlucky = Task(
        tiny(
            steps=300,
            train={"schedule": "crowded"},
            execution={"checkpoint_every": 20, "plugins": ["crowded"]},
        )
    )
    family = family_plan(tiny(routes=["1->2"], steps=10))
    ended: list[str] = []
    lock = threading.Lock()  # a live display has such, which nobody can pickle

    def watch(report: Report) -> None:
        with lock, cluster():  # the one in use, which is neither started nor ended
            ended.extend([report.run] if report.phase == "completed" else [])

    crowded.touch()
    with ThreadPoolExecutor() as beside:
        sent = beside.submit(kill, lab.run(unlucky.run))
        RayExecutor(TrialResources(concurrent=2)).run(lab, [unlucky, *family.tasks], watch)
        sent.result()
    parent, *children = (task.run for task in family.tasks)
    assert ended.index(parent) < min(map(ended.index, children)) and sorted(ended) == sorted(
        [parent, *children, unlucky.run]
    )
    assert [len(lab.run(task.run).origin()) for task in family.tasks] == [1, 1, 1]
    folder = lab.run(unlucky.run)
    assert [one.ended for one in folder.attempts.read()] == ["exception", "died", "completed"]
    assert not folder.heartbeat_path.exists()
    calm = Lab(tmp_path / "calm")
    carry_out(calm, unlucky)
    assert outcome(calm).items() <= outcome(lab).items()


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that a plugin's schedule `crowded` looks for, here and in Ray's workers."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "crowded.py").write_text(CROWDED)
    monkeypatch.syspath_prepend(site)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{path}".rstrip(os.pathsep))
    yield site / "full"


def kill(run: RunFolder) -> None:
    """SIGKILL the worker of a run on its way, stopped, as a driver does."""
    from tread_lab.sweep.execution.ray_cluster import kill_on

    eventually(lambda: run.step() > 20, 400)  # after the others, where it found no memory
    last = run.attempts.read()[-1]
    os.kill(last.pid, signal.SIGSTOP)
    assert not kill_on("0" * 56, last.pid) and kill_on(last.node, last.pid)
