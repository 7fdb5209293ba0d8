"""Disk that the runs will need and the room that is left; a warning when it runs short."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from tread_lab.records.lab import Lab
from tread_lab.specs.units import amount
from tread_lab.sweep.plan.disk import free_bytes, largest_file
from tread_lab.sweep.run_task import Report
from tread_lab.sweep.runner import ReportHandler
from tread_lab.sweep.task import Task
from tread_lab.terminal.console import say

EVERY = 10.0  # seconds between two checks of the disk


def disk_lines(need: Mapping[str, int], lab: Lab) -> Iterator[str]:
    """Yield what the open runs leave on the disk, and a warning where there is no room for it."""
    if not need:
        return
    listed = ", ".join(f"{amount(size)} of {what}" for what, size in need.items())
    free, total = free_bytes(lab), sum(need.values())
    yield f"disk: at most {listed}; {amount(free)} free in {lab.root}"
    if free < total:
        yield (
            f"the disk may not suffice: {amount(total)} at most, {amount(free)} free;"
            " `tread-lab rm` removes runs, a smaller execution.keep_checkpoints needs less,"
            " another --root may have more"
        )


class DiskWatch:
    """Pass reports on, and warn once when the lab's disk is nearly full.

    It is nearly full when two of the largest files would not fit: a file is written whole before
    it replaces an older one.
    """

    def __init__(self, lab: Lab, tasks: Sequence[Task], watch: ReportHandler) -> None:
        self._lab, self._watch = lab, watch
        self._low = 2 * largest_file(tasks)
        self._next = 0.0
        self._warned = False

    def __call__(self, report: Report) -> None:
        self._watch(report)
        if self._warned or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        free = free_bytes(self._lab)
        if free < self._low:
            self._warned = True
            say(
                f"{amount(free)} are left on the disk of {self._lab.root}, and the next file"
                f" may take {amount(self._low / 2)}: `tread-lab rm` removes runs;"
                " after a full disk the same command continues"
            )
