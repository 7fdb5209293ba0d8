"""Signals stop a runner, and a mistake of one task does not."""

from __future__ import annotations

import os
import signal

import pytest

from tests.sweep.plans import tiny
from tread_lab.records.lab import Lab
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.runner import InlineRunner, Interrupted, stop_signals
from tread_lab.sweep.task import ListQueue, Task


def test_stop_interrupts_only_running_tasks(lab: Lab) -> None:
    def stop_at_the_end(report: Report) -> None:
        queue.stop = report.phase == "completed"

    queue = ListQueue([Task(tiny(steps=1))])
    InlineRunner(device="cpu").run(lab, queue, stop_at_the_end)
    assert queue.stop and queue.done
    queue = ListQueue([Task(tiny(steps=3, seed=1))])
    queue.stop = True
    with pytest.raises(Interrupted):
        InlineRunner(device="cpu").run(lab, queue, lambda report: None)
    assert lab.run_of(tiny(steps=3, seed=1)).attempts()[0].ended == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_acts_as_usual(number: signal.Signals) -> None:
    hits: list[int] = []
    earlier = signal.signal(number, lambda number, frame: hits.append(number))
    try:
        with stop_signals() as stopping:
            assert not stopping()
            os.kill(os.getpid(), number)
            assert stopping() and hits == []
            os.kill(os.getpid(), number)
            assert hits == [number]
        os.kill(os.getpid(), number)
        assert len(hits) == 2
    finally:
        signal.signal(number, earlier)
