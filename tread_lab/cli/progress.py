"""Progress of long work: bars with the time left on a terminal, in a log a line now and then."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tread_lab.cli.console import notices, say
from tread_lab.config.labels import run_label
from tread_lab.config.units import counts_text, duration
from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.sweep.forecast import evaluation_flops_left, task_flops
from tread_lab.sweep.run_task import QUEUED, UNDER_WAY, Report
from tread_lab.sweep.runner import ReportHandler
from tread_lab.sweep.task import Task, kept_share

Step = TypeVar("Step", bound=tuple[int, ...])  # what is done, all there is, and what is damaged
_LINE_SECONDS = 20.0  # between two lines of progress in a log
_PERIOD = 3600.0  # seconds over which the speed is averaged


class Bars(Progress):
    """Progress bars on a terminal; in a log, lines about the first bar."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        super().__init__(
            *columns,
            console=notices,
            transient=True,
            disable=not notices.is_terminal,
            speed_estimate_period=_PERIOD,
        )
        self._last_line = self.get_time()

    @property
    def left(self) -> str:
        """Time left of the first bar at its average speed; `...` if unknown."""
        seconds = self.tasks[0].time_remaining
        return "..." if seconds is None else duration(seconds)

    def note(self) -> None:
        """Print a line in a log, unless the last one is recent."""
        if self.disable and self.get_time() - self._last_line >= _LINE_SECONDS:
            self._last_line = self.get_time()
            first = self.tasks[0]
            say(f"{first.percentage:.0f}%, {first.description}, {self.left} left")


def with_progress(steps: Iterator[Step], noun: str) -> tuple[Any, Step | None]:
    """Show progress until a generator ends; return its result and its last step.

    Args:
        noun: unit of the work.
    """
    last = None
    with Bars() as bars:
        bar = bars.add_task(noun, total=None)
        while True:
            try:
                last = next(steps)
            except StopIteration as end:
                return end.value, last
            done, total, *damaged = last
            text = f"{done:,}/{total:,} {noun}"
            text += f", {damaged[0]} damaged" if any(damaged) else ""
            bars.update(bar, total=total, completed=done, description=text)
            bars.note()


@contextmanager
def tasks_progress(
    open_tasks: Sequence[Task],
    lab: Lab,
    possible: Sequence[Task] = (),
    labels: Mapping[str, str] | None = None,
    page: Path | None = None,
) -> Iterator[ReportHandler]:
    """Show the progress of tasks within the block.

    Args:
        open_tasks: all open tasks; for a search, the remaining number of tasks of typical length.
        possible: further tasks whose progress may be reported.
        labels: by run; a run without one is named by its spec.
        page: the file where pages read the time left.
    """
    with Bars() as bars:
        work = TasksDone(bars, open_tasks, lab, possible, labels or {})

        def watch(report: Report) -> None:
            work.record(report)
            if page is not None:
                page.write_text(bars.left)

        try:
            yield watch
        finally:
            if page is not None:
                page.unlink(missing_ok=True)


class TasksDone:
    """Completed share of the open tasks, in training and evaluation FLOPs, and its bars."""

    def __init__(
        self,
        bars: Bars,
        open_tasks: Sequence[Task],
        lab: Lab,
        possible: Sequence[Task] = (),
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._bars, self._lab, self._labels = bars, lab, labels or {}
        self._tasks = {task.run: task for task in (*possible, *open_tasks)}
        self._done = {task.run: self._work(task, kept_share(lab, task)) for task in open_tasks}
        self._runs, self._total = len(open_tasks), sum(map(task_flops, open_tasks))
        self._ended: dict[str, str] = {}  # by run, its last phase
        self._rows: dict[str, TaskID] = {}
        self._all = bars.add_task("", total=None)
        self._show()

    def record(self, report: Report) -> None:
        """Count a report and show it."""
        run, task = report.run, self._tasks[report.run]
        label = self._labels.get(run) or run_label(task.spec)
        if report.phase == QUEUED:
            say(f"{label}: {report.note}")
            return
        loss = f", loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
        text = f"{label}: {report.phase}{loss}"
        self._ended.pop(run, None)
        if report.phase in UNDER_WAY:
            self._done[run] = self._work(task, report.share, report.measured)
            if run not in self._rows:
                self._rows[run] = self._bars.add_task(label, total=task_flops(task))
            self._bars.update(self._rows[run], completed=self._done[run], description=text)
        else:
            self._done[run], self._ended[run] = task_flops(task), report.phase
            if run in self._rows:
                self._bars.remove_task(self._rows.pop(run))
            why = f": {report.note.splitlines()[0]}" if report.note else ""
            say(f"{text} ({self.counts()}){why}")
        self._show()

    def counts(self) -> str:
        """Return `4/8 ended: 3 completed, 1 failed`."""
        runs = max(self._runs, len(self._ended) + len(self._rows))
        text = f"{len(self._ended)}/{runs} ended"
        return f"{text}: {counts_text(Counter(self._ended.values()))}" if self._ended else text

    def _work(self, task: Task, trained: float, measured: float = 0.0) -> float:
        """Return the FLOPs of a task that are done, by its record and these shares."""
        left = (1 - trained) * cost(task.spec).train_flops
        return task_flops(task) - left - evaluation_flops_left(self._lab, task, measured)

    def _show(self) -> None:
        done = sum(self._done.values())
        self._bars.update(self._all, total=self._total, completed=done, description=self.counts())
        self._bars.note()
