"""Claims about runs that hang: ended after their time, with where they stood, and tried again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tread_lab.records.attempts import Attempt
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec
from tread_lab.sweep.execution import heartbeat
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.execution.heartbeat import HeartbeatMonitor
from tread_lab.sweep.trial import watchdog
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report
from tread_lab.sweep.trial.watchdog import Patience, Watchdog, every_forward_pass

Tiny = Callable[..., RunSpec]


class Clock:
    """`time.monotonic` by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_patience_grows_with_the_runs_own_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, patience = Clock(monkeypatch), Patience()
    assert patience.limit == watchdog.FIRST
    for pause, limit in ((1.0, watchdog.LEAST), (60.0, 60 * watchdog.FACTOR), (1.0, 3000.0)):
        clock.pass_by(pause)
        patience.progress()
        assert (patience.limit, patience.silence) == (limit, 0)
    patience.start_phase()
    fixed = Patience(7.0)
    assert (patience.limit, fixed.limit) == (watchdog.FIRST, 70.0)
    clock.pass_by(3.0)
    fixed.progress()
    assert fixed.limit == 7.0


def test_every_call_of_a_network_is_progress_while_measuring() -> None:
    passes: list[int] = []
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with every_forward_pass(lambda: passes.append(1)):
        network(torch.zeros(1, 2))
    assert len(passes) == 3
    network(torch.zeros(1, 2))
    assert len(passes) == 3


def test_a_watchdog_that_had_nothing_to_do_leaves_nothing(tmp_path: Path) -> None:
    dump, heartbeat = tmp_path / "stacks" / "attempt-1.txt", tmp_path / ".pulse"
    with Watchdog(dump, heartbeat, 60.0) as dog:
        dog.progress()
        assert heartbeat.exists()
    assert not dump.exists() and not heartbeat.exists()


def test_a_watchdog_that_is_off_tells_nobody_to_wait_for_progress(tmp_path: Path) -> None:
    with Watchdog(tmp_path / "stacks" / "attempt-1.txt", tmp_path / ".pulse", 0.0) as dog:
        dog.progress()
        assert (tmp_path / ".pulse").read_text() == "" and not (tmp_path / "stacks").exists()


def test_a_driver_ends_who_is_silent_for_longer_than_its_own_watchdog_allows_and_only_him(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    watching = HeartbeatMonitor(lab, killed.append)
    folders = [lab.run(name) for name in ("silent", "patient", "alive", "ended", "unborn")]
    for pid, folder in enumerate(folders):
        folder.attempts.open(pid=pid, host="h")
        watching.begin(folder.name)
        folder.heartbeat_path.write_text("60.0" if folder.name == "patient" else "10.0")
    folders[-1].heartbeat_path.unlink()
    for second in range(40):
        clock.pass_by(1.0)
        os.utime(folders[2].heartbeat_path, (second, second))
        if second == 5:
            watching.forget("ended")
        watching.look()
        assert not killed or second >= 10 + heartbeat.MARGIN
    assert [attempt.pid for attempt in killed] == [0]
    assert "stopped or frozen" in folders[0].stack_dump(1).read_text()


def test_a_driver_that_was_held_up_itself_blames_nobody(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, killed = Clock(monkeypatch), list[Attempt]()
    watching = HeartbeatMonitor(lab, killed.append)
    lab.run("a").attempts.open(pid=1)
    lab.run("a").heartbeat_path.write_text("10.0")
    watching.begin("a")
    for _ in range(5):
        clock.pass_by(3600.0)
        watching.look()
    assert killed == []


HANGS = """
import ctypes, sys, time
from pathlib import Path
from tread_lab.records.lab import Lab
from tread_lab.sweep.trial import trial
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.execution.executor import InlineExecutor
lab, how, train = Lab(Path(sys.argv[1])), sys.argv[3], trial.train

def hanging(*arguments):
    for progress in train(*arguments):
        if progress.step == 3:
            time.sleep(60) if how == "sleeps" else ctypes.PyDLL(None).sleep(60)
        yield progress

trial.train = hanging
task = Task(lab.run(sys.argv[2]).spec())
InlineExecutor(device="cpu", hang_timeout=1.0).run(lab, [task], lambda report: None)
"""


@pytest.mark.fault(
    19,
    done="a trial that stops in mid-step for good, asleep or holding the interpreter's lock",
    survived="ended after its time; where every thread stood is kept; the next attempt completes",
)
@pytest.mark.parametrize(("how", "code"), [("sleeps", 3), ("holds the interpreter's lock", 1)])
def test_a_hung_run_is_ended_with_where_it_stood_and_then_tried_again(
    lab: Lab, tiny: Tiny, how: str, code: int
) -> None:
    spec = tiny(steps=6)
    folder = lab.run_of(spec)
    folder.create(spec)
    command = [sys.executable, "-c", HANGS, str(lab.root), folder.name, how]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == code and not folder.result(), done.stderr
    assert ("made no progress for 1 s" in done.stderr) == (how == "sleeps")
    assert "in hanging" in folder.stack_dump(1).read_text()
    InlineExecutor(device="cpu").run(lab, [Task(spec)], lambda report: None)
    first, second = folder.attempts.read()
    assert (first.ended, second.ended) == ("hung", "completed")
    assert str(folder.stack_dump(1)) in first.reason and folder.stack_dump(1).exists()


@pytest.mark.slow
def test_on_ray_a_stopped_worker_is_killed_by_the_driver_and_tried_again(
    lab: Lab, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    monkeypatch.setattr(heartbeat, "MARGIN", 4.0)
    spec, stopped = tiny(steps=600), list[int]()
    folder = lab.run_of(spec)

    def watch(report: Report) -> None:
        if report.step and not stopped:
            stopped.append(folder.attempts.read()[-1].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    executor: Any = RayExecutor(hang_timeout=4.0)
    executor.run(lab, [Task(spec)], watch)
    assert [attempt.ended for attempt in folder.attempts.read()] == ["hung", "completed"]
    assert "State:\tT (stopped)" in folder.stack_dump(1).read_text()
    assert not folder.heartbeat_path.exists()
