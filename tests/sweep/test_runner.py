"""Signals stop a runner, and a mistake of one task does not."""

from __future__ import annotations

import pytest

from tests.sweep.plans import tiny
from tread_lab.records.lab import Lab
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.runner import InlineRunner, Interrupted
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
