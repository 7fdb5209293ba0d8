"""Live progress of runs: bars on a terminal, a line every 20 seconds in a log."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.specs.labels import run_label, run_labels
from tread_lab.specs.units import counts_text, duration
from tread_lab.sweep.plan.forecast import evaluation_flops_left, task_flops
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.run_task import QUEUED, UNDER_WAY, Report
from tread_lab.sweep.runner import ReportHandler
from tread_lab.sweep.task import Task, kept_share
from tread_lab.terminal.console import notices, say

_MIN_SECONDS, _MIN_SHARE = 5.0, 0.005  # no time left is shown before these
_LINE_SECONDS = 20.0  # between two lines of progress in a log
_PAGE_SECONDS = 5.0  # between two writes of the time left for pages
_WITHOUT_BARS = 80  # columns of a terminal below which texts take the room of the bars


@contextmanager
def sweep_progress(
    plan: Plan, open_tasks: Sequence[Task], lab: Lab, slots: int
) -> Iterator[ReportHandler]:
    """Show the progress of a sweep.

    Args:
        open_tasks: the open runs; of a search, as many as will come and about as long.
        slots: how many runs go at once.
    """
    labels = run_labels(plan.possible_trials)
    work = WorkDone(open_tasks, plan.possible_tasks, lab, labels, slots)
    path, written = lab.sweep(plan.name).time_left_path, 0.0
    with _shown(work) as watch:

        def watch_and_write(report: Report) -> None:
            nonlocal written
            watch(report)
            if time.monotonic() - written > _PAGE_SECONDS:
                written = time.monotonic()
                with suppress(OSError):  # pages go without it
                    path.write_text(work.time_left())

        try:
            yield watch_and_write
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def run_progress(open_tasks: Sequence[Task], lab: Lab) -> Iterator[ReportHandler]:
    """Show the progress of one run and of its parents."""
    with _shown(WorkDone(open_tasks, open_tasks, lab)) as watch:
        yield watch


@contextmanager
def _shown(work: WorkDone) -> Iterator[ReportHandler]:
    with _bars(work) if notices.is_terminal else _lines(work) as refresh:

        def watch(report: Report) -> None:
            if report.phase == QUEUED:
                say(f"{work.label(report.run)}: {report.note}")
                return
            work.record(report)
            refresh(report)

        yield watch


class WorkDone:
    """How much of the open work is done, in FLOPs of training and of evaluations.

    Args:
        open_tasks: the tasks that were open when it began; they are all the work.
        possible_tasks: every task that may be reported.
        labels: by run; a run without one is named by its spec.
        slots: how many runs go at once.
    """

    def __init__(
        self,
        open_tasks: Sequence[Task],
        possible_tasks: Sequence[Task],
        lab: Lab,
        labels: Mapping[str, str] | None = None,
        slots: int = 1,
    ) -> None:
        self._labels = labels or {}
        self._slots, self._lab, self._runs = slots, lab, len(open_tasks)
        self._tasks = {task.run: task for task in (*possible_tasks, *open_tasks)}
        self._done_earlier = {task.run: self._recorded(task) for task in open_tasks}
        work = sum(task_flops(task) for task in open_tasks)
        self._total = work - sum(self._done_earlier.values())
        self._done: dict[str, float] = {}
        self._gained = 0.0  # done in this session: the sum of `_gain` of all runs
        self._running: dict[str, Report] = {}
        self._ended: dict[str, str] = {}  # by run, its last phase
        self._counts: Counter[str] = Counter()  # of these phases
        self._started: float | None = None
        self._untimed = 0.0  # work of this session before its first report, which starts the clock

    def record(self, report: Report) -> None:
        """Take a report into account; say when a run overflows for the first time."""
        run, last = report.run, self._running.get(report.run)
        if report.overflows and not (last and last.overflows):
            say(f"{self.label(run)}: a step overflowed in fp16 and was skipped")
        self._note_phase(report)
        self._gained -= self._gain(run)
        self._done[run] = self._reported(report)
        earlier = self._done_earlier.setdefault(run, 0.0 if _ended(report) else self._done[run])
        if self._done[run] < earlier:  # it continues from a checkpoint before its last log entry
            self._done_earlier[run] = self._done[run]
            self._total += earlier - self._done[run]
        self._gained += self._gain(run)
        self._runs = max(self._runs, len(self._ended) + len(self._running))
        if self._started is None:
            self._started, self._untimed = time.monotonic(), self._gained

    def _note_phase(self, report: Report) -> None:
        if (phase := self._ended.pop(report.run, None)) is not None:
            self._counts[phase] -= 1
        self._running.pop(report.run, None)
        if _ended(report):
            self._ended[report.run] = report.phase
            self._counts[report.phase] += 1
        else:
            self._running[report.run] = report

    def _gain(self, run: str) -> float:
        """Return what this session has done of a run."""
        return self._done[run] - self._done_earlier[run] if run in self._done else 0.0

    def label(self, run: str) -> str:
        """Return the label of a run."""
        return self._labels.get(run) or run_label(self._tasks[run].spec)

    def fraction(self) -> float:
        """Return the share of the open work that is done."""
        return min(self._gained / self._total, 1.0) if self._total else 1.0

    def time_left(self) -> str:
        """Return the time left: at the speed seen so far."""
        elapsed = time.monotonic() - (self._started or time.monotonic())
        done = (self._gained - self._untimed) / self._slots
        if elapsed < _MIN_SECONDS or self.fraction() < _MIN_SHARE or done <= 0:
            return "..."
        return duration(self._left_in_slot() * elapsed / done)

    def counts(self) -> str:
        """Return `4/8 ended: 3 completed, 1 failed`."""
        text = f"{len(self._ended)}/{self._runs} ended"
        return f"{text}: {counts_text(+self._counts)}" if self._ended else text

    def summary(self) -> str:
        """Return `4/8 ended: 3 completed, 1 failed, 2 min left`; no time once all have ended."""
        left = "" if len(self._ended) == self._runs else f", {self.time_left()} left"
        return self.counts() + left

    def _left_in_slot(self) -> float:
        """Return the work left in one slot: an even share, and no less than its longest run."""
        share = max(self._total - self._gained, 0.0) / self._slots
        works = (task_flops(self._tasks[run]) - self._done[run] for run in self._running)
        return max([share, *works])

    def _recorded(self, task: Task) -> float:
        """Return the work that the run's record already holds."""
        trained = kept_share(self._lab, task) * cost(task.spec).train_flops
        return trained + self._evaluated(task)

    def _reported(self, report: Report) -> float:
        """Return the work that is done by the time of a report."""
        task = self._tasks[report.run]
        if _ended(report):
            return task_flops(task)
        trained = cost(task.spec).train_flops * report.share
        evaluated = self._evaluated(task, report.measured) if report.phase == "evaluate" else 0.0
        return trained + evaluated

    def _evaluated(self, task: Task, measured: float = 0.0) -> float:
        left = evaluation_flops_left(self._lab, task, measured)
        return task_flops(task) - cost(task.spec).train_flops - left


@contextmanager
def _bars(work: WorkDone) -> Iterator[ReportHandler]:
    narrow = notices.width < _WITHOUT_BARS
    texts = [
        TextColumn(text, table_column=Column(no_wrap=not narrow, overflow="fold"))
        for text in ("{task.description}", "{task.fields[note]}")
    ]
    columns = texts if narrow else [texts[0], BarColumn(), texts[1], TimeElapsedColumn()]
    with Progress(*columns, console=notices, transient=True) as bars:
        overall = bars.add_task("sweep", total=1.0, note="starting workers")
        rows: dict[str, TaskID] = {}

        def refresh(report: Report) -> None:
            bars.update(overall, completed=work.fraction(), note=work.summary())
            if _ended(report):
                if report.run in rows:
                    bars.remove_task(rows.pop(report.run))
                bars.console.print(_end_line(work, report), markup=False)
                return
            if report.run not in rows:
                rows[report.run] = bars.add_task(work.label(report.run), total=1.0, note="")
            note = _phase(report)
            bars.update(rows[report.run], completed=report.share, note=note)

        yield refresh


@contextmanager
def _lines(work: WorkDone) -> Iterator[ReportHandler]:
    last_line = time.monotonic()

    def refresh(report: Report) -> None:
        nonlocal last_line
        if _ended(report):
            say(_end_line(work, report))
        elif time.monotonic() - last_line < _LINE_SECONDS:
            return
        else:
            say(f"{work.fraction():.0%}, {work.summary()}")
        last_line = time.monotonic()

    yield refresh


def _ended(report: Report) -> bool:
    return report.phase not in UNDER_WAY


def _end_line(work: WorkDone, report: Report) -> str:
    why = f": {report.note.splitlines()[0]}" if report.note else ""
    loss = _loss(report, "training loss")
    return f"{work.label(report.run)}: {report.phase}{loss} ({work.counts()}){why}"


def _phase(report: Report) -> str:
    if report.phase == "evaluate":
        return f"measuring, {report.measured:.0%}"
    return f"step {report.step}/{report.steps}{_loss(report, 'loss')}"


def _loss(report: Report, name: str) -> str:
    return f", {name} {report.loss:.4f}" if math.isfinite(report.loss) else ""
