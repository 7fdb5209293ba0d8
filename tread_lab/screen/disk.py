"""The disk that runs will need beside the room that is left, said once more when it runs short."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tread_lab.records.lab import Lab
from tread_lab.screen.console import answer, say
from tread_lab.specs.units import amount
from tread_lab.sweep.execution.executor import ReportHandler
from tread_lab.sweep.plan.disk import DiskNeed, disk_need, room
from tread_lab.sweep.trial.task import Task
from tread_lab.sweep.trial.trial import Report

EVERY = 10.0  # seconds between two looks at the disk


def show_disk(need: DiskNeed, lab: Lab, *, asked: bool = False) -> None:
    """Say what the open runs leave on the disk, and whether there is room for it.

    Args:
        asked: the plan is what the command was asked for, and goes to stdout.
    """
    if not need.total:
        return
    parts = {
        "checkpoints": need.checkpoints,
        "samples": need.samples,
        "features of references": need.references,
        "REPA's features": need.targets,
    }
    listed = ", ".join(f"{amount(size)} of {what}" for what, size in parts.items() if size)
    left = room(lab)
    line = answer if asked else say
    line(f"disk: at most {listed}; {amount(left)} free in {lab.root}")
    if left < need.total:
        line(
            f"the disk may not suffice: {amount(need.total)} at most, {amount(left)} free;"
            " `tread-lab gc` lists what can go (--samples: images too), fewer"
            " execution.keep_checkpoints need less, another --root may have more"
        )


class DiskWatch:
    """Passes reports on, and says once that the lab's disk is nearly full.

    That is when two of the largest files would not fit: a file is written whole before it takes
    the place of an older one.
    """

    def __init__(self, lab: Lab, tasks: Sequence[Task], watch: ReportHandler) -> None:
        self._lab, self._watch = lab, watch
        self._low = 2 * disk_need(tasks).largest
        self._next = 0.0
        self._said = False

    def __call__(self, report: Report) -> None:
        self._watch(report)
        if self._said or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        left = room(self._lab)
        if left < self._low:
            self._said = True
            say(
                f"{amount(left)} are left on the disk of {self._lab.root}, and the next file"
                f" may take {amount(self._low / 2)}: `tread-lab gc` lists what can go;"
                " the same command goes on after a full disk"
            )
