"""Claims about runs that hang: ended after their time, with where they stood, and tried again."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.drivers import Zygote
from tests.sweep.plans import carry_out, tiny
from tread_lab.records.lab import Lab
from tread_lab.sweep.trial import watchdog
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.watchdog import (
    Watchdog,
    every_forward_pass,
    watched,
)


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
    tmp_path: Path, timers: list[Any], clock: Any
) -> None:
    pulse = tmp_path / ".pulse"
    with Watchdog(tmp_path / "stacks" / "1.txt", pulse, 7.0) as dog:
        assert timers == [(72.0, True)] and pulse.exists()
        dog.progress()  # within a quarter of a second of the last
        clock.now += 0.125
        dog.progress()
        assert len(timers) == 1
        clock.now += 0.125
        os.utime(pulse, (1.0, 1.0))
        dog.progress()
        assert timers[1:] == [(9.0, True)] and pulse.stat().st_mtime > 1.0
        dog.start_phase()
        assert timers[2:] == [(72.0, True)]
        clock.now += 100.0
        dog.resume()
        assert timers[3:] == [(72.0, True)]
        dog.pause()
        assert timers[4:] == ["off"]
    assert timers[5:] == ["off"] and not pulse.exists()


def test_the_limit_grows_with_the_runs_own_pace(
    tmp_path: Path, timers: list[Any], clock: Any
) -> None:
    with Watchdog(tmp_path / "stacks" / "1.txt", tmp_path / ".pulse", None) as dog:
        for pause in (1.0, 12.5, 60.0, 1.0):
            clock.now += pause
            dog.progress()
        assert watchdog.longest_silence(None) == 3000.0
        dog.start_phase()
        assert watchdog.longest_silence(None) == 1800.0
        limits = (1800, 600, 625, 3000, 3000, 1800)
        assert timers == [(limit + 2.0, True) for limit in limits]


def test_within_a_block_alone_the_watchdog_of_the_process_counts(
    tmp_path: Path, timers: list[Any], clock: Any
) -> None:
    with watched():  # a process without a watchdog
        pass
    assert timers == []
    with Watchdog(tmp_path / "stacks" / "1.txt", tmp_path / ".pulse", 7.0) as dog:
        clock.now += 50.0
        with watched():
            assert timers[1:] == [(72.0, True)]
            clock.now += 1.0
            dog.progress()
            clock.now += 0.25  # the 50 seconds outside were no pause
            dog.progress()
            assert timers[2:] == [(9.0, True)] * 2
        assert timers[4:] == ["off"]
    with watched():
        assert timers[5:] == ["off"]
    assert [watchdog.first_limit(seconds) for seconds in (None, 7.0, 0.0)] == [1800, 70, math.inf]


def test_every_call_of_a_network_is_progress_while_measuring() -> None:
    passes: list[int] = []
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with every_forward_pass(lambda: passes.append(1)):
        network(torch.zeros(1, 2))
    assert len(passes) == 3
    network(torch.zeros(1, 2))
    assert len(passes) == 3


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_compiled_block_keeps_its_graph_from_one_evaluation_to_the_next() -> None:
    from torch._dynamo.testing import CompileCounter  # which takes seconds

    torch._dynamo.reset()
    counter = CompileCounter()
    network = torch.nn.Sequential(Doubling())
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
        assert pulse.exists() and not dump.parent.exists() and timers == []
    with Watchdog(dump, pulse, 0.1) as dog:  # one that had nothing to do leaves nothing
        assert len(timers) == 1
    assert not dump.exists() and not pulse.exists()


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
    lab: Lab, zygote: Zygote, how: str, code: int
) -> None:
    spec = tiny(steps=6)
    folder = lab.run_of(spec)
    folder.create(spec)
    done = zygote.python(HANGS, str(lab.root), folder.name, how)
    assert done.returncode == code and not folder.result(), done.stderr
    assert ("made no progress for 1 s" in done.stderr) == (how == "sleeps")
    assert "in hanging" in folder.stack_dump(1).read_text()
    carry_out(lab, Task(spec))
    first, second = folder.attempts.read()
    assert (first.ended, second.ended) == ("hung", "completed")
    assert str(folder.stack_dump(1)) in first.reason and folder.stack_dump(1).exists()
