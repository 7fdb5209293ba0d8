"""Live progress: bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tread_lab.records.lab import Lab
from tread_lab.screen.console import notices, say
from tread_lab.specs.labels import run_label, run_labels
from tread_lab.specs.units import counts_text, duration
from tread_lab.sweep.execution.executor import ReportHandler
from tread_lab.sweep.plan.forecast import Forecast
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.trial.task import Task, done_share
from tread_lab.sweep.trial.trial import UNDER_WAY, Report

_PRIOR_SECONDS = 30.0  # of work that a prediction weighs as much as
_PATIENCE, _LITTLE = 5.0, 0.005  # seconds and share before which no speed is told from
_QUIET_SECONDS = 20.0  # between two lines of progress where there is no terminal


@contextmanager
def progress(plan: Plan, todo: Sequence[Task], outlook: Forecast) -> Iterator[ReportHandler]:
    """Live progress of a sweep: a bar and the running trials, or a line now and then.

    Args:
        todo: the open runs; of a search, as many as will come and about as long.
        outlook: what tells how long parts of runs take.
    """
    labels = run_labels(plan.possible_trials)
    with _shown(Board(todo, plan.possible_tasks, outlook, labels)) as watch:
        yield watch


@contextmanager
def run_progress(todo: Sequence[Task], lab: Lab) -> Iterator[ReportHandler]:
    """Live progress of one run and of those it starts from."""
    with _shown(Board(todo, todo, Forecast(lab))) as watch:
        yield watch


@contextmanager
def _shown(board: Board) -> Iterator[ReportHandler]:
    with _bars(board) if notices.is_terminal else _lines(board) as refresh:

        def watch(report: Report) -> None:
            board.note(report)
            refresh(report)

        yield watch


class Board:
    """How far a sweep is with what was open when it began, in the work that an outlook tells.

    Args:
        labels: by run; others are called by their spec alone.
    """

    def __init__(
        self,
        todo: Sequence[Task],
        possible: Sequence[Task],
        outlook: Forecast,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._labels = labels or {}
        self._outlook, self._lab, self._runs = outlook, outlook.lab, len(todo)
        self._tasks = {task.run: task for task in (*possible, *todo)}
        self._before = {task.run: self._done_before(task) for task in todo}
        self._total = sum(outlook.work(task) for task in todo) - sum(self._before.values())
        self._done: dict[str, float] = {}
        self._reports: dict[str, Report] = {}
        self._started: float | None = None

    def note(self, report: Report) -> None:
        """Take a report in."""
        if self._started is None:
            self._started = time.monotonic()
        run, last = report.run, self._reports.get(report.run)
        if report.overflows and not (last and last.overflows):
            say(f"{self.label(run)}: a step overflowed in fp16 and was skipped")
        self._reports[run] = report
        self._done[run] = self._done_by(report)
        before = self._before.setdefault(run, 0.0 if _ended(report) else self._done[run])
        if self._done[run] < before:  # it goes on from a checkpoint before its last entry
            self._before[run] = self._done[run]
            self._total += before - self._done[run]

    def label(self, run: str) -> str:
        """The run as people call it."""
        return self._labels.get(run) or run_label(self._tasks[run].spec)

    def fraction(self) -> float:
        """The share of the open work that is done."""
        return min(self._progress() / self._total, 1.0) if self._total else 1.0

    def left(self) -> str:
        """Time left: as predicted at first, more and more at the speed that is seen."""
        elapsed = time.monotonic() - (self._started or time.monotonic())
        done = self._progress() / self._outlook.slots
        prior = _PRIOR_SECONDS if self._outlook.speeds else 0.0
        if not prior and (elapsed < _PATIENCE or self.fraction() < _LITTLE):
            return "..."
        return duration(self._work_left() * (elapsed + prior) / (done + prior))

    def counts(self) -> str:
        """`4/8 ended: 3 completed, 1 failed`."""
        ended = Counter(r.phase for r in self._reports.values() if _ended(r))
        told = f"{ended.total()}/{self._runs} ended"
        return f"{told}: {counts_text(ended)}" if ended else told

    def outlook(self) -> str:
        """`4/8 ended: 3 completed, 1 failed, about 2 min left`; no time where all have ended."""
        ended = sum(map(_ended, self._reports.values()))
        return self.counts() if ended == self._runs else f"{self.counts()}, {self.left()} left"

    def _progress(self) -> float:
        return sum(done - self._before[run] for run, done in self._done.items())

    def _work_left(self) -> float:
        """Of one lane: an even share of all, but no less than the longest run under way."""
        share = max(self._total - self._progress(), 0.0) / self._outlook.slots
        running = [run for run, report in self._reports.items() if not _ended(report)]
        return max([share, *(self._outlook.work(self._tasks[r]) - self._done[r] for r in running)])

    def _done_before(self, task: Task) -> float:
        trained = done_share(self._lab, task) * self._outlook.training(task.spec)
        return trained + self._measured(task)

    def _done_by(self, report: Report) -> float:
        task = self._tasks[report.run]
        if _ended(report):
            return self._outlook.work(task)
        trained = self._outlook.training(task.spec) * report.step / report.steps
        return trained + (self._measured(task) if report.phase == "evaluate" else 0.0)

    def _measured(self, task: Task) -> float:
        return self._outlook.measuring(task) - self._outlook.measuring(task, still=True)


@contextmanager
def _bars(board: Board) -> Iterator[ReportHandler]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), console=notices, transient=True) as bars:
        overall = bars.add_task("sweep", total=1.0, note="starting workers")
        rows: dict[str, TaskID] = {}

        def refresh(report: Report) -> None:
            bars.update(overall, completed=board.fraction(), note=board.outlook())
            if _ended(report):
                if report.run in rows:
                    bars.remove_task(rows.pop(report.run))
                bars.console.print(_end_line(board, report))
                return
            if report.run not in rows:
                rows[report.run] = bars.add_task(board.label(report.run), total=1.0, note="")
            note = _phase(report)
            bars.update(rows[report.run], completed=report.step / report.steps, note=note)

        yield refresh


@contextmanager
def _lines(board: Board) -> Iterator[ReportHandler]:
    spoken = time.monotonic()

    def refresh(report: Report) -> None:
        nonlocal spoken
        if _ended(report):
            say(_end_line(board, report))
        elif time.monotonic() - spoken < _QUIET_SECONDS:
            return
        else:
            say(f"{board.fraction():.0%}, {board.outlook()}")
        spoken = time.monotonic()

    yield refresh


def _ended(report: Report) -> bool:
    return report.phase not in UNDER_WAY


def _end_line(board: Board, report: Report) -> str:
    loss = f", training loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    why = f": {report.note.splitlines()[0]}" if report.note else ""
    return f"{board.label(report.run)}: {report.phase}{loss} ({board.counts()}){why}"


def _phase(report: Report) -> str:
    if report.phase == "evaluate":
        return "measuring"
    loss = f", loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    return f"step {report.step}/{report.steps}{loss}"
