"""The queue of a search: it asks for a cell when there is room, and tells how it went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tread_lab.engine.cost.training import cost
from tread_lab.records import stopped_early, suggestions
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.status import RunState
from tread_lab.records.suggestions import Asked
from tread_lab.specs.decode import encode
from tread_lab.specs.expansion import Trial
from tread_lab.specs.search import SearchSpec
from tread_lab.specs.search_space import Space
from tread_lab.specs.wording import counted
from tread_lab.sweep.plan.goals import cell_values
from tread_lab.sweep.plan.plan import Plan, Searched
from tread_lab.sweep.search.queue import ListQueue
from tread_lab.sweep.search.sampler import Observation, StoredStudy, StudyTrial, propose
from tread_lab.sweep.trial.family import with_ancestors
from tread_lab.sweep.trial.trial import Task

Fits = Callable[[Sequence[Task]], bool]


@dataclass
class _Cell:
    """One cell that was asked for: its runs, and what is known of it."""

    asked: Asked
    trials: list[Trial]
    observation: Observation

    @property
    def over(self) -> bool:
        return self.observation.state != "running"


class SearchQueue:
    """Hands out the runs of the baselines, then of one asked cell after another.

    Asked cells stand in the sweep's folder before anything of them starts, and those that an
    earlier session left open come first. `fits` may refuse a new cell, which ends the asking.
    """

    stop = False

    def __init__(self, lab: Lab, plan: Plan, *, fits: Fits = lambda tasks: True) -> None:
        assert plan.search is not None
        self.lab, self.plan, self.fits = lab, plan, fits
        self.folder: SweepFolder = lab.sweep(plan.name)
        self.search: SearchSpec = plan.search.spec
        self.searched: Searched = plan.search
        self.space = Space(plan.search.cells)
        self.study = StoredStudy(
            self.folder.study_path, plan.name, self.searched.objectives, self.space
        )
        self.exhausted = self.full = False
        self._running: set[str] = set()
        self._ended: set[str] = set()
        self._queue = ListQueue(plan.open_tasks(lab), after=plan.baselines_first)
        self.cells: list[_Cell] = []
        for entry in suggestions.read(self.folder.asked_path):
            self._take_up(entry)
        self._tell()
        self._show()

    @property
    def finished(self) -> bool:
        """Nothing is left to hand out, and no result could lead to a further question."""
        over = self.exhausted or len(self.cells) >= self.search.trials
        return (over or self.full) and self._queue.finished

    @property
    def over(self) -> bool:
        return self.finished and self._queue.over

    @property
    def left(self) -> str:
        trials = min(self.search.trials, len(self.space)) - sum(c.over for c in self.cells)
        return f"{counted(trials, 'trial')} left"

    def next(self) -> Task | None:
        while (task := self._queue.next()) is None and self._may_suggest():
            self._suggest()
        if task is not None:
            self._running.add(task.run)
        return task

    def ended(self, task: Task) -> None:
        name = task.run
        self._queue.ended(task)
        self._running.discard(name)
        self._ended.add(name)
        if self._tell():
            self._show()

    def _may_suggest(self) -> bool:
        """Whether the next cell can be chosen now: there is room, and what it rests on is told."""
        if self.finished or self.full or self.exhausted:
            return False
        count, width = len(self.cells), self.search.parallel
        if count >= self.search.trials:
            return False
        if self.search.in_order:
            return all(cell.over for cell in self.cells[: max(count - width + 1, 0)])
        return sum(not cell.over for cell in self.cells) < width

    def _suggest(self) -> None:
        known = [cell.observation for cell in self.cells]
        if self.search.in_order:  # later results are there by chance
            first = len(known) - self.search.parallel + 1
            known = [k if n < first else _unknown(k) for n, k in enumerate(known)]
        found = propose(self.search, self.searched.objectives, self.space, known)
        if found is None:
            self.exhausted = True
            return
        number, notes = found
        cell = self.space.cells[number]
        trials = self.searched.trials_of(cell)
        if not self.fits(self._open([*trials])):
            self.full = True
            return
        entry = Asked(len(self.cells), cell, tuple(encode(tuple(trials))), notes)
        suggestions.append(self.folder.asked_path, entry)
        self._take_up(entry)
        self._tell()
        self._show()

    def _take_up(self, entry: Asked) -> None:
        """An asked cell joins the others; what is not done of it is to be carried out."""
        number = self.space.number_of(entry.cell)
        if number is None:  # of another space, under the same name: the plan was checked
            return
        trials = self.searched.trials_of(self.space.cells[number])
        self.cells.append(_Cell(entry, trials, Observation(number, notes=entry.notes)))
        self._queue.add(self._open(trials))

    def _open(self, trials: Sequence[Trial]) -> list[Task]:
        tasks = with_ancestors(Task(trial.spec, self.plan.evaluations) for trial in trials)
        return self.plan.open_of(self.lab, tasks)

    def _tell(self) -> bool:
        """Take over the results that are there by now; whether there were any."""
        told = False
        for cell in self.cells:
            if not cell.over:
                cell.observation = self._outcome(cell)
                told = told or cell.over
        return told

    def _outcome(self, cell: _Cell) -> Observation:
        known = cell.observation
        open_runs = {task.run for task in self._open(cell.trials)}
        if open_runs - self._ended:
            return known
        before = stopped_early.read(self.folder.stopped_path)
        runs = [self.lab.run(trial.run) for trial in cell.trials]
        states = {  # the worker of a run that was stopped a moment ago may still hold its claim
            RunState.STOPPED if run.name in before and run.result() is None else run.state()
            for run in runs
        }
        if states & {RunState.DIVERGED, RunState.STOPPED} and not open_runs:
            return Observation(known.cell, "bad", notes=known.notes)
        if states != {RunState.COMPLETED}:
            return Observation(known.cell, "failed", notes=known.notes)
        mine = [trial for trial in cell.trials if trial.role == "trial"]
        values = cell_values(self.lab, mine, self.searched.objectives, self.plan.evaluations)
        if values is None:
            return Observation(known.cell, "failed", notes=known.notes)
        return Observation(known.cell, "measured", values, known.notes)

    def _show(self) -> None:
        self.study.show([StudyTrial(cell.observation, _facts(cell)) for cell in self.cells])


def _unknown(known: Observation) -> Observation:
    return Observation(known.cell, notes=known.notes)


def _facts(cell: _Cell) -> dict[str, object]:
    """What the study shows beside a trial's parameters."""
    mine = [trial for trial in cell.trials if trial.role == "trial"]
    return {
        "cell": dict(cell.asked.cell),
        "runs": [trial.run for trial in mine],
        "train_flops": sum(cost(trial.spec).train_flops for trial in mine),
    }
