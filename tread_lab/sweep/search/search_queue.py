"""The queue of a search: suggests a cell when a slot is free, and observes how its runs end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tread_lab.engine.cost.training import cost
from tread_lab.records import stopped_early, suggestions
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredTrial
from tread_lab.records.status import RunState
from tread_lab.records.suggestions import Suggestion
from tread_lab.specs.cell import Cell
from tread_lab.specs.search_space import Space
from tread_lab.specs.trials import Trial
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.goals import cell_values
from tread_lab.sweep.plan.plan import Plan, Searched
from tread_lab.sweep.search.queue import ListQueue
from tread_lab.sweep.search.sampler import Observation, StoredStudy, propose
from tread_lab.sweep.trial.task import Task

Fits = Callable[[Sequence[Task]], bool]


@dataclass
class _Cell:
    """One suggested cell: its runs, and what is known of it."""

    trials: tuple[Trial, ...]
    observation: Observation

    @property
    def over(self) -> bool:
        return self.observation.state != "running"


class SearchQueue:
    """Hands out the runs of the baselines, then of one suggested cell after another.

    A suggestion stands in the sweep's folder before any of its runs starts. Suggestions that an
    earlier session left open come first. A cell that `fits` refuses ends the search.
    """

    stop = False

    def __init__(self, lab: Lab, plan: Plan, *, fits: Fits = lambda tasks: True) -> None:
        assert plan.search is not None
        self.lab, self.plan, self.fits = lab, plan, fits
        self.folder, self.searched = lab.sweep(plan.name), plan.search
        self.search, self.space = plan.search.spec, Space(plan.search.cells)
        self.study = StoredStudy(
            self.folder.study_path,
            plan.name,
            plan.search.objectives,
            self.space,
            partial(_facts, plan.search),
        )
        self.full = self._all_suggested = False
        self._ended: set[str] = set()  # runs, in this session
        self._queue = ListQueue(plan.open_tasks(lab), after=plan.baselines_first)
        self.cells: list[_Cell] = []
        for suggestion in suggestions.read(self.folder.suggestions_path):
            self._add(suggestion)
        self._observe()

    @property
    def finished(self) -> bool:
        return self._suggests_no_more and self._queue.finished

    @property
    def _suggests_no_more(self) -> bool:
        return self.full or self._all_suggested or len(self.cells) >= self.search.trials

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
        return task

    def ended(self, task: Task) -> None:
        self._queue.ended(task)
        self._ended.add(task.run)
        self._observe()

    def _may_suggest(self) -> bool:
        """Return whether a slot is free and the results that a suggestion needs are known."""
        if self._suggests_no_more:
            return False
        if self.search.in_order:
            needed = self.cells[: max(len(self.cells) - self.search.parallel + 1, 0)]
            return all(cell.over for cell in needed)
        return sum(not cell.over for cell in self.cells) < self.search.parallel

    def _suggest(self) -> None:
        observations = [cell.observation for cell in self.cells]
        if self.search.in_order:  # later results are there by chance
            first = max(len(observations) - self.search.parallel + 1, 0)
            later = (Observation(o.cell, notes=o.notes) for o in observations[first:])
            observations = [*observations[:first], *later]
        proposal = propose(self.search, self.searched.objectives, self.space, observations)
        if proposal is None:
            self._all_suggested = True
            return
        number, notes = proposal
        cell = self.space.cells[number]
        trials = self.searched.trials_of(cell)
        if not self.fits(self._open(trials)):
            self.full = True
            return
        suggestion = Suggestion(len(self.cells), cell, tuple(map(StoredTrial.of, trials)), notes)
        suggestions.append(self.folder.suggestions_path, suggestion)
        self._add(suggestion)
        self._observe()

    def _add(self, suggestion: Suggestion) -> None:
        """Queue the open runs of a suggested cell."""
        number = self.space.number_of(suggestion.cell)
        if number is None:  # of another space, under the same name: the plan was checked
            return
        trials = self.searched.trials_of(self.space.cells[number])
        self.cells.append(_Cell(trials, Observation(number, notes=suggestion.notes)))
        self._queue.add(self._open(trials))

    def _open(self, trials: Sequence[Trial]) -> list[Task]:
        return self.plan.open_of(self.lab, self.plan.tasks_of(trials))

    def _observe(self) -> None:
        """Read the results of the open cells, and show all in the study."""
        for cell in self.cells:
            if not cell.over:
                cell.observation = self._observation(cell)
        self.study.show([cell.observation for cell in self.cells])

    def _observation(self, cell: _Cell) -> Observation:
        """Return what is known of a cell by now."""
        open_runs = {task.run for task in self._open(cell.trials)}
        if open_runs - self._ended:
            return cell.observation
        states = self._states(cell)
        if states & {RunState.DIVERGED, RunState.STOPPED} and not open_runs:
            return replace(cell.observation, state="bad")
        values = self._values(cell) if states == {RunState.COMPLETED} else None
        if values is None:
            return replace(cell.observation, state="failed")
        return replace(cell.observation, state="measured", values=values)

    def _states(self, cell: _Cell) -> set[RunState]:
        """Return the states of a cell's runs; a run that was stopped a moment ago is `STOPPED`,
        although its worker may still hold its lock."""
        stopped = stopped_early.read(self.folder.stopped_path)
        runs = [self.lab.run(trial.run) for trial in cell.trials]
        return {
            RunState.STOPPED if run.name in stopped and run.result() is None else run.state()
            for run in runs
        }

    def _values(self, cell: _Cell) -> tuple[float, ...] | None:
        trials = [trial for trial in cell.trials if trial.role == "trial"]
        return cell_values(self.lab, trials, self.searched.objectives, self.plan.evaluations)


def _facts(searched: Searched, cell: Cell) -> dict[str, Any]:
    trials = [trial for trial in searched.trials_of(cell) if trial.role == "trial"]
    flops = sum(cost(trial.spec).train_flops for trial in trials)
    return {"cell": dict(cell), "runs": [trial.run for trial in trials], "train_flops": flops}
