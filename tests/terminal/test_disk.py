"""What the disk will hold in one line, and a warning where there is no room for it."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweep.plans import tiny
from tests.terminal.conftest import Screen
from tread_lab.records.lab import Lab
from tread_lab.specs.units import amount
from tread_lab.sweep.plan.disk import largest_file
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.task import Task
from tread_lab.terminal import disk
from tread_lab.terminal.disk import DiskWatch, disk_lines

REPORT = Report("run", "train", 1, 2, 0.5)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that are left, settable."""
    left = [10**12]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=left[0]))
    return left


def test_each_part_that_takes_room_is_listed_and_what_helps_where_there_is_none(
    lab: Lab, free: list[int], screen: Screen
) -> None:
    screen("nothing is needed", disk_lines, {}, lab)
    references = {"features of references": 3_000_000}
    need = {"checkpoints": 2000, **references, "encoders' features": 500}
    for left in (10**12, 3_002_500, 3_002_499):
        free[0] = left
        screen(f"{left:,} bytes are left", disk_lines, need, lab)
    free[0] = 4000
    need = {"samples": 2000, "samples under way": 1000, "encoders' features": 2000}
    screen("samples and features", disk_lines, need, lab)


def test_the_disk_is_low_when_two_of_the_largest_files_would_not_fit(
    lab: Lab, free: list[int], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, passed = list[str](), list[Report]()
    monkeypatch.setattr(disk, "say", said.append)
    tasks = [Task(tiny())]
    largest = largest_file(tasks)
    watch = DiskWatch(lab, tasks, passed.append)
    free[0] = 2 * largest
    watch(REPORT)
    free[0] = 2 * largest - 1
    clock.now += 9.0  # the disk is looked at every ten seconds
    watch(REPORT)
    assert said == []
    clock.now += 1.0
    watch(REPORT)
    assert said == [
        f"{amount(2 * largest - 1)} are left on the disk of {lab.root}, and the next file may take"
        f" {amount(largest)}: `tread-lab rm` removes runs; after a full disk the same command"
        " continues"
    ]
    clock.now += 100.0
    watch(REPORT)
    assert len(said) == 1 and passed == [REPORT] * 4
