"""Runs on one Ray cluster at once: killed, stopped, hopeless, short of memory, and children of
another run."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.compare import outcome
from tests.faults.drivers import eventually, reached
from tests.packages import write_metadata
from tests.sweep.trial.test_task import family_plan
from tread_lab.engine.cost.training import cost
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec, signature
from tread_lab.specs.extensions import installed
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import store_plan
from tread_lab.sweep.trial import watchdog
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report

pytestmark = pytest.mark.slow

Tiny = Callable[..., RunSpec]

# A rate that finds no memory once, while the file `full` lies beside it.
CROWDED = """
from pathlib import Path

import torch


def crowded(done):
    try:
        Path(__file__).with_name("full").unlink()
    except FileNotFoundError:
        return 1.0
    raise torch.OutOfMemoryError("CUDA out of memory")
"""
POINT = "[tread_lab.schedules]\ncrowded = crowded:crowded\n"


def endings(lab: Lab, spec: RunSpec) -> list[str]:
    return [attempt.ended for attempt in lab.run_of(spec).attempts.read()]


def train(lab: Lab, *specs: RunSpec) -> None:
    InlineExecutor(device="cpu").run(lab, [Task(spec) for spec in specs], lambda report: None)


@pytest.mark.fault(
    4,
    survived="another worker takes the trial up at its last checkpoint; losses and weights equal"
    " those of a trial that nobody killed, bitwise",
)
@pytest.mark.fault(
    19,
    survived="the driver kills it after its time, keeps where it stood, and tries the trial again",
)
@pytest.mark.fault(
    7,
    survived="where runs share a device, the trial waits until it has one to itself, and completes",
)
@pytest.mark.usefixtures("crowded")
def test_each_ends_as_it_should_whatever_happens_to_the_others(
    lab: Lab, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_executor import RayExecutor
    from tread_lab.sweep.execution.resources import TrialResources

    monkeypatch.setattr(watchdog, "MARGIN", 4.0)
    killed = tiny(steps=120, seed=1, execution={"checkpoint_every": 20})
    stopped = tiny(steps=300, seed=3)
    hopeless = unloadable(lab, tiny)
    short = tiny(steps=20, seed=4, train={"schedule": "crowded"})
    family = family_plan(tiny(routes=["1->2"], steps=10))
    store_plan(lab.sweep("family"), family)
    reports: list[Report] = []
    lock = threading.Lock()  # a live display has such, which nobody can pickle

    def watch(report: Report) -> None:
        with lock:
            reports.append(report)

    tasks = [*map(Task, (killed, stopped, hopeless, short)), *family.tasks]
    (tmp_path / "site" / "full").touch()
    with ThreadPoolExecutor() as beside:
        sent = [
            beside.submit(kill_after, lab.run_of(killed), 20),
            beside.submit(stop_under_way, lab.run_of(stopped)),
        ]
        RayExecutor(TrialResources(concurrent=2), hang_timeout=15.0).run(lab, tasks, watch)
        for sending in sent:
            sending.result()
    assert endings(lab, killed) == ["died", "completed"]
    calm = Lab(tmp_path / "calm")
    train(calm, killed)
    assert outcome(calm).items() <= outcome(lab).items()
    assert endings(lab, stopped) == ["hung", "completed"]
    folder = lab.run_of(stopped)
    assert "State:\tT (stopped)" in folder.stack_dump(1).read_text()
    assert not folder.heartbeat_path.exists()
    assert endings(lab, hopeless) == ["exception"] * 2
    result = lab.run_of(hopeless).result() or {}
    assert lab.run_of(hopeless).state() == "failed"
    assert "size mismatch" in result["reason"] and "load_state_dict" in result["traceback"]
    check_family(lab, family, reports)
    tries = lab.run_of(short).attempts.read()
    assert [(a.ended, a.whole) for a in tries] == [("oom", False), ("completed", True)]
    others = [lab.run(task.run).attempts.read()[-1] for task in tasks]
    assert tries[-1].time == max(attempt.time for attempt in others)


@pytest.fixture
def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package whose schedule is `crowded`, here and in Ray's workers."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "crowded.py").write_text(CROWDED)
    write_metadata(site, POINT, name="crowded", version="1")
    monkeypatch.syspath_prepend(site)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{path}".rstrip(os.pathsep))
    installed.cache_clear()
    yield
    installed.cache_clear()


def kill_after(run: RunFolder, step: int) -> None:
    """SIGKILL the worker of a run once it has logged a later step."""
    reached(run, step)
    os.kill(run.attempts.read()[-1].pid, signal.SIGKILL)


def stop_under_way(run: RunFolder) -> None:
    """SIGSTOP the worker of a run once it may pause for 15 s at most: the first step has 150 s."""
    heartbeat = run.heartbeat_path
    eventually(lambda: heartbeat.exists() and heartbeat.read_text() == "15.000\n", 200)
    os.kill(run.attempts.read()[-1].pid, signal.SIGSTOP)


def unloadable(lab: Lab, tiny: Tiny) -> RunSpec:
    """A run whose folder holds the checkpoints of a wider network."""
    hopeless = tiny(steps=6, seed=2)
    other = tiny(steps=6, model={"depth": 4, "width": 32, "heads": 2})
    train(lab, other)
    shutil.copytree(lab.run_of(other).checkpoints, lab.run_of(hopeless).checkpoints)
    return hopeless


def check_family(lab: Lab, plan: Plan, reports: Sequence[Report]) -> None:
    """The parent was trained once, before its two children, and counts in what each has cost."""
    parent, *children = plan.tasks
    folders = [lab.run(task.run) for task in plan.tasks]
    assert [folder.state() for folder in folders] == ["completed"] * 3
    assert [len(folder.origin()) for folder in folders] == [1, 1, 1]
    ended = [r.run for r in reports if r.phase == "completed"]
    members = [run for run in ended if run in {task.run for task in plan.tasks}]
    assert members[0] == signature(parent.spec) and len(members) == 3
    metrics = (folders[1].result() or {})["metrics"]
    parts = [cost(spec).train_flops for spec in (parent.spec, children[0].spec)]
    assert metrics[metric_names.TRAIN_FLOPS] == parts[1]
    assert metrics[metric_names.FAMILY_FLOPS] == sum(parts)
    assert plan.open_tasks(lab) == []
