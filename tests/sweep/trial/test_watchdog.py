"""Claims about runs that hang: ended after their time, with where they stood, and tried again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tests.faults.drivers import Zygote
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.trial import watchdog
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.watchdog import (
    HeartbeatMonitor,
    Watchdog,
    every_forward_pass,
    watched,
)

Tiny = Callable[..., RunSpec]


class Clock:
    """`time.monotonic` by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the timer in C is told, in place of one."""
    told: list[Any] = []
    later = lambda limit, *, exit, file: told.append((limit, exit))  # noqa: E731
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", later)
    cancel = watchdog.faulthandler, "cancel_dump_traceback_later"
    monkeypatch.setattr(*cancel, lambda: told.append("off"))
    return told


def test_the_timer_in_c_waits_two_seconds_more_and_is_set_at_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timers: list[Any]
) -> None:
    clock, pulse = Clock(monkeypatch), tmp_path / ".pulse"
    with Watchdog(tmp_path / "stacks" / "1.txt", pulse, 7.0) as dog:
        assert timers == [(72.0, True)] and pulse.read_text() == "70.000\n"
        dog.progress()  # within a quarter of a second of the last
        clock.pass_by(0.125)
        dog.progress()
        assert len(timers) == 1
        clock.pass_by(0.125)
        dog.progress()
        assert timers[1:] == [(9.0, True)] and pulse.read_text() == "7.000\n"
        pulse.write_text("untouched")
        clock.pass_by(1.0)
        dog.progress()
        assert pulse.read_text() == "untouched"  # the limit is the same
        dog.start_phase()
        assert timers[2:] == [(9.0, True), (72.0, True)] and pulse.read_text() == "70.000\n"
        clock.pass_by(100.0)
        dog.resume()
        assert timers[4:] == [(72.0, True)]
        dog.pause()
        assert timers[5:] == ["off"]
    assert timers[6:] == ["off"]


@pytest.mark.parametrize(
    ("seconds", "pauses", "limits"),
    [
        (None, (0.0, 1.0, 12.5, 60.0, 1.0), (1800, 600, 625, 3000, 3000)),
        (7.0, (0.0, 3.0, 60.0), (70, 7, 7)),
    ],
)
def test_the_limit_grows_with_the_runs_own_pace_unless_it_is_fixed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    timers: list[Any],
    seconds: float | None,
    pauses: Sequence[float],
    limits: Sequence[float],
) -> None:
    clock, pulse = Clock(monkeypatch), tmp_path / ".pulse"
    with Watchdog(tmp_path / "stacks" / "1.txt", pulse, seconds) as dog:
        for pause, limit in zip(pauses, limits):
            clock.pass_by(pause)
            dog.progress()
            assert pulse.read_text() == f"{limit:.3f}\n"
        dog.start_phase()
        assert pulse.read_text() == f"{limits[0]:.3f}\n"


def test_within_a_block_alone_the_watchdog_of_the_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timers: list[Any]
) -> None:
    clock = Clock(monkeypatch)
    with watched():  # a process without a watchdog
        pass
    assert timers == []
    with Watchdog(tmp_path / "stacks" / "1.txt", tmp_path / ".pulse", 7.0) as dog:
        clock.pass_by(50.0)
        with watched():
            assert timers[1:] == [(72.0, True)]
            clock.pass_by(1.0)
            dog.progress()
            clock.pass_by(0.25)  # the 50 seconds outside were no pause
            dog.progress()
            assert timers[2:] == [(9.0, True)] * 2
        assert timers[4:] == ["off"]
    with watched():
        assert timers[5:] == ["off"]


def test_every_call_of_a_network_is_progress_while_measuring() -> None:
    passes: list[int] = []
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with every_forward_pass(lambda: passes.append(1)):
        network(torch.zeros(1, 2))
    assert len(passes) == 3
    network(torch.zeros(1, 2))
    assert len(passes) == 3


def test_a_compiled_block_keeps_its_graph_from_one_evaluation_to_the_next() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    network = torch.nn.Sequential(torch.nn.Linear(2, 2))
    network[0].compile(backend=counter, fullgraph=True)
    passes: list[int] = []
    for evaluation in range(3):
        with every_forward_pass(lambda n=evaluation: passes.append(n)):  # type: ignore[misc]
            network(torch.zeros(1, 2))
    assert passes == [0, 1, 2] and counter.frame_count == 1


def test_a_watchdog_that_is_off_tells_nobody_to_wait_for_progress(
    tmp_path: Path, timers: list[Any]
) -> None:
    dump, pulse = tmp_path / "stacks" / "attempt-1.txt", tmp_path / ".pulse"
    with Watchdog(dump, pulse, 0.0) as dog:
        dog.progress()
        dog.start_phase()
        dog.pause()
        assert pulse.read_text() == "" and not dump.parent.exists() and timers == []
    with Watchdog(dump, pulse, 0.1) as dog:  # one that had nothing to do leaves nothing
        assert pulse.read_text() == "1.000\n" and len(timers) == 1
    assert not dump.exists() and not pulse.exists()


class Driver:
    """A driver that watches run `a`, and the (number, pid) of each attempt that it has killed."""

    def __init__(self, lab: Lab, clock: Clock) -> None:
        self.clock, self.killed, self.folder = clock, list[tuple[int, int]](), lab.run("a")
        self.monitor = HeartbeatMonitor(lab, lambda made: self.killed.append((made.n, made.pid)))
        self.folder.attempts.open(pid=os.getpid(), host="h")
        self.monitor.begin("a")

    def polls(self, *pauses: float) -> int:
        """Poll after each of the pauses; return how many were killed so far."""
        for pause in pauses:
            self.clock.pass_by(pause)
            self.monitor.poll()
        return len(self.killed)


@pytest.fixture
def driver(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(lab, Clock(monkeypatch))


@pytest.mark.parametrize(
    ("pauses", "deaths"),
    [
        ([1.0] * 26, 0),  # the first poll sees the file
        ([1.0] * 26 + [0.5], 0),  # within a second of the last poll
        ([1.0] * 26 + [0.5, 0.5], 1),
        ([0.5, 0.5] + [1.0] * 25, 0),  # the first sees nothing yet
        ([0.5, 0.5] + [1.0] * 26, 1),
        ([1.0] * 80, 1),  # once
        ([1.0] * 20 + [7.5], 1),
        ([1.0] * 20 + [7.75], 0),  # held up for more than half the margin
        ([3600.0] * 5, 0),
    ],
)
def test_a_silence_is_too_long_15_seconds_after_the_limit_unless_the_driver_was_held_up(
    driver: Driver, pauses: list[float], deaths: int
) -> None:
    driver.folder.heartbeat_path.write_text("10.0")
    assert driver.polls(*pauses) == deaths
    if deaths:
        assert driver.killed == [(1, os.getpid())]
        why = driver.folder.stack_dump(1).read_text()
        assert re.match(
            rf"Process {os.getpid()} on h gave no sign for \d\d s, not even to its own watchdog:"
            r" it was stopped or frozen\. .*\n(.*\n)*State:\t",  # of this very process
            why,
        )


def test_a_heartbeat_has_its_last_limit_also_when_it_is_read_while_it_is_written(
    driver: Driver,
) -> None:
    for second, text in enumerate(("99.0", "10.0", ""), 1):
        driver.folder.heartbeat_path.write_text(text)
        os.utime(driver.folder.heartbeat_path, (second, second))
        driver.polls(1.0)
    assert driver.polls(*[1.0] * 25) == 0 and driver.polls(1.0) == 1


def test_an_attempt_counts_once_it_has_a_heartbeat_and_anew_when_the_run_begins_again(
    driver: Driver,
) -> None:
    assert driver.polls(*[1.0] * 60) == 0
    driver.folder.heartbeat_path.write_text("10.0")
    assert driver.polls(*[1.0] * 20) == 0
    driver.monitor.forget("a")
    assert driver.polls(*[1.0] * 20) == 0
    driver.monitor.begin("a")
    assert driver.polls(*[1.0] * 26) == 0 and driver.polls(1.0) == 1


def test_what_has_ended_or_was_never_begun_is_not_killed_and_its_next_attempt_is(
    lab: Lab, driver: Driver
) -> None:
    for name in ("none", "unlimited"):
        lab.run(name).path.mkdir(parents=True)
        lab.run(name).heartbeat_path.write_text("" if name == "unlimited" else "1.0")
        driver.monitor.begin(name)
    lab.run("unlimited").attempts.open(pid=2)
    attempts = driver.folder.attempts
    attempts.close(attempts.read()[0], "completed")
    driver.folder.heartbeat_path.write_text("1.0")
    assert driver.polls(*[1.0] * 60) == 0
    attempts.open(pid=3)  # the next attempt at the same run, as silent
    driver.polls(1.0)
    attempts.close(attempts.read()[1], "died")
    attempts.open(pid=4)
    driver.polls(1.0)
    assert driver.killed == [(2, 3), (3, 4)]


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
        if progress.step == 2:
            time.sleep(0.3)  # a pause that counts: without one a limit is ten times as long
        if progress.step == 3:
            time.sleep(60) if how == "sleeps" else ctypes.PyDLL(None).sleep(60)
        yield progress

trial.train = hanging
task = Task(lab.run(sys.argv[2]).spec())
InlineExecutor(device="cpu", hang_timeout=1.0).run(lab, [task], lambda report: None)
"""


@pytest.mark.fault(
    19,
    survived="ended after its time; where every thread stood is kept; the next attempt completes",
)
@pytest.mark.parametrize(("how", "code"), [("sleeps", 3), ("holds the interpreter's lock", 1)])
def test_a_hung_run_is_ended_with_where_it_stood_and_then_tried_again(
    lab: Lab, tiny: Tiny, zygote: Zygote, how: str, code: int
) -> None:
    spec = tiny(steps=6)
    folder = lab.run_of(spec)
    folder.create(spec)
    done = zygote.python(HANGS, str(lab.root), folder.name, how)
    assert done.returncode == code and not folder.result(), done.stderr
    assert ("made no progress for 1 s" in done.stderr) == (how == "sleeps")
    assert "in hanging" in folder.stack_dump(1).read_text()
    InlineExecutor(device="cpu").run(lab, [Task(spec)], lambda report: None)
    first, second = folder.attempts.read()
    assert (first.ended, second.ended) == ("hung", "completed")
    assert str(folder.stack_dump(1)) in first.reason and folder.stack_dump(1).exists()
