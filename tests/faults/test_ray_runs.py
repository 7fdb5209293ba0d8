"""A run on Ray that raises once and is killed once, beside a parent and its children."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import eventually
from tests.sweep.plans import carry_out, tiny
from tests.sweep.test_task import family_plan
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.task import ListQueue, Task

pytestmark = pytest.mark.slow


# A rate that fails once, while the file `full` lies beside it.
CROWDED = """
from pathlib import Path

from tread_lab.train.optimizer import SCHEDULES


@SCHEDULES.register("crowded")
def crowded(done):
    try:
        Path(__file__).with_name("full").unlink()
    except FileNotFoundError:
        return 1.0
    raise RuntimeError("once")
"""


@pytest.mark.task(5)
@pytest.mark.fault(4, survived="another worker resumes; losses and weights are equal bitwise")
def test_run_survives_an_exception_and_a_kill(lab: Lab, tmp_path: Path, crowded: Path) -> None:
    pytest.importorskip("ray")
    from tread_lab.hardware import RunResources
    from tread_lab.sweep.ray_runner import RayRunner

    execution = {"checkpoint_every": 20, "plugins": ["crowded"]}
    unlucky = Task(tiny(steps=300, train={"schedule": "crowded"}, execution=execution))
    family = family_plan(tiny(routes=["1->2"], steps=10))
    ended, lock = list[str](), threading.Lock()  # a live display has a lock, which pickles refuse

    def watch(report: Report) -> None:
        with lock:
            ended.extend([report.run] if report.phase == "completed" else [])

    crowded.touch()
    with ThreadPoolExecutor() as beside:
        killed = beside.submit(kill, lab.run(unlucky.run))
        queue = ListQueue([unlucky, *family.tasks])
        RayRunner(RunResources(concurrent=2)).run(lab, queue, watch)
        killed.result()
    parent, *children = (task.run for task in family.tasks)
    assert ended.index(parent) < min(map(ended.index, children))
    assert sorted(ended) == sorted([parent, *children, unlucky.run])
    assert [len(lab.run(task.run).attempts()) for task in family.tasks] == [1, 1, 1]
    endings = [attempt.ended for attempt in lab.run(unlucky.run).attempts()]
    assert endings == ["exception", "died", "completed"]
    calm = Lab(tmp_path / "calm")
    carry_out(calm, unlucky)
    assert outcome(calm).items() <= outcome(lab).items()


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a plugin's schedule `crowded` looks for, here and in Ray's workers."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "crowded.py").write_text(CROWDED)
    monkeypatch.syspath_prepend(site)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{path}".rstrip(os.pathsep))
    return site / "full"


def kill(run: RunFolder) -> None:
    """SIGKILL the worker of a run on its way."""
    eventually(lambda: run.step() > 20, 400)
    os.kill(run.attempts()[-1].pid, signal.SIGKILL)
