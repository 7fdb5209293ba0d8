"""Live progress: bars on a terminal, a line now and then in a log."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tread_lab.engine.cost import cost
from tread_lab.records.layout import Lab
from tread_lab.screen.console import out, say
from tread_lab.screen.words import duration, run_label
from tread_lab.spec.signature import signature
from tread_lab.sweep.plan import Plan
from tread_lab.sweep.trial import Report, Task

Watch = Callable[[Report], None]
_QUIET_SECONDS = 20.0  # between two lines of progress where there is no terminal


@contextmanager
def progress(plan: Plan, lab: Lab, todo: Sequence[Task], lanes: int) -> Iterator[Watch]:
    """Live progress of a sweep: a bar and the running trials, or a line now and then."""
    labels = {signature(task.spec): run_label(task.spec) for task in plan.possible_tasks}
    board = _Board({signature(task.spec): task for task in todo}, labels)
    if plan.search is not None:  # `todo` has the number and the mean cost of what will come
        board.open_ended({signature(task.spec): task for task in plan.possible_tasks})
    with _bars(board) if out.is_terminal else _lines(board) as refresh:

        def watch(report: Report) -> None:
            board.note(report)
            refresh(report)

        yield watch


@contextmanager
def run_progress(todo: Sequence[Task]) -> Iterator[Watch]:
    """Live progress of one run and of those it starts from."""
    tasks = {signature(task.spec): task for task in todo}
    board = _Board(tasks, {name: run_label(task.spec) for name, task in tasks.items()})
    with _bars(board) if out.is_terminal else _lines(board) as refresh:

        def watch(report: Report) -> None:
            board.note(report)
            refresh(report)

        yield watch


class _Board:
    """How far the open tasks are, in training FLOPs."""

    def __init__(self, tasks: Mapping[str, Task], labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.work = {name: cost(task.spec).train_flops for name, task in tasks.items()}
        self.share = dict.fromkeys(tasks, 0.0)
        self.reports: dict[str, Report] = {}
        self.first: dict[str, float] = {}
        self.started = time.monotonic()
        self.total, self.runs = sum(self.work.values()), len(self.work)

    def open_ended(self, possible: Mapping[str, Task]) -> None:
        """Other runs than those expected may come, as many and about as long."""
        self.work = {name: cost(task.spec).train_flops for name, task in possible.items()}
        self.share.clear()

    def note(self, report: Report) -> None:
        before = self.reports.get(report.run)
        if report.overflows and not (before and before.overflows):
            say(f"{self.labels[report.run]}: a step overflowed in fp16 and was skipped")
        self.reports[report.run] = report
        share = 1.0 if _ended(report) else 0.97 * report.step / report.steps
        self.first.setdefault(report.run, share if report.phase == "train" else 0.0)
        self.share[report.run] = share

    def fraction(self) -> float:
        done = sum(self.work[name] * share for name, share in self.share.items())
        return min(done / self.total, 1.0)

    def left(self) -> str:
        """Time left at the speed so far; what earlier attempts did is not counted as speed."""
        before = sum(self.work[n] * f for n, f in self.first.items()) / self.total
        done, elapsed = self.fraction() - before, time.monotonic() - self.started
        if done < 0.005 or elapsed < 5:
            return "..."
        return duration(elapsed * (1 - self.fraction()) / done)

    def counts(self) -> str:
        ended = Counter(r.phase for r in self.reports.values() if _ended(r))
        bad = [f"{count} {state}" for state, count in ended.items() if state != "completed"]
        return ", ".join([f"{ended['completed']}/{self.runs} done", *bad])


@contextmanager
def _bars(board: _Board) -> Iterator[Watch]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), console=out, transient=True) as bars:
        overall = bars.add_task("sweep", total=1.0, note="starting workers")
        rows: dict[str, TaskID] = {}

        def refresh(report: Report) -> None:
            note = f"{board.counts()}, {board.left()} left"
            bars.update(overall, completed=board.fraction(), note=note)
            if _ended(report):
                if report.run in rows:
                    bars.remove_task(rows.pop(report.run))
                bars.console.print(_end_line(board, report))
                return
            if report.run not in rows:
                rows[report.run] = bars.add_task(board.labels[report.run], total=1.0, note="")
            note = _phase(report)
            bars.update(rows[report.run], completed=report.step / report.steps, note=note)

        yield refresh


@contextmanager
def _lines(board: _Board) -> Iterator[Watch]:
    spoken = time.monotonic()

    def refresh(report: Report) -> None:
        nonlocal spoken
        if _ended(report):
            say(_end_line(board, report))
        elif time.monotonic() - spoken < _QUIET_SECONDS:
            return
        else:
            say(f"{board.fraction():.0%}, {board.counts()}, about {board.left()} left")
        spoken = time.monotonic()

    yield refresh


def _ended(report: Report) -> bool:
    return report.phase not in ("train", "evaluate")


def _end_line(board: _Board, report: Report) -> str:
    loss = f", training loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    why = f": {report.note.splitlines()[0]}" if report.note else ""
    return f"{board.labels[report.run]}: {report.phase}{loss} ({board.counts()}){why}"


def _phase(report: Report) -> str:
    if report.phase == "evaluate":
        return "measuring"
    loss = f", loss {report.loss:.4f}" if math.isfinite(report.loss) else ""
    return f"step {report.step}/{report.steps}{loss}"
