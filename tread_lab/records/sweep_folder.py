"""The folder of one sweep: its plan, and what was suggested and spent meanwhile."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from tread_lab.config.errors import UserError
from tread_lab.config.labels import AnySpec, Cell, Spec, Tree, Trial, cell_label
from tread_lab.records.durable import modified, read_json, write_json
from tread_lab.records.locks import exclusive, is_held
from tread_lab.records.log import append_line, read_lines
from tread_lab.records.run_folder import LOCK
from tread_lab.records.stored_plan import PlanOf, StoredPlan, read_plan

_EVERY = 15.0  # seconds between two records of the time; what a kill can lose


@dataclass(frozen=True)
class Suggestion(Generic[AnySpec]):
    """One cell that a search chose.

    Attributes:
        number: its place in the order of choosing, from 0.
        cell: its axis values.
        trials: its trials, baselines that only it needs included.
    """

    number: int
    cell: Cell
    trials: tuple[Trial[AnySpec], ...]


@dataclass(frozen=True)
class SweepFolder:
    """One sweep: its newest plan and what is made from its runs."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def plan_path(self) -> Path:
        return self.path / "plan.json"

    @property
    def stamp(self) -> tuple[float | None, float | None]:
        """When the plan was written last, and when a search last added to it, in seconds."""
        return modified(self.plan_path), modified(self.suggestions_path)

    @property
    def history_path(self) -> Path:
        return self.path / "history.jsonl"

    def add_accepted(self, plan: PlanOf[AnySpec], now: float) -> None:
        """Append an accepted file: its time, the trees it was made from, its cells' runs.

        Args:
            now: in seconds.
        """
        cells: dict[str, list[str]] = {}
        for trial in plan.with_baseline_cells.trials:
            if trial.role == "trial" and trial.run != trial.baseline:
                cells.setdefault(cell_label(trial), []).append(trial.run)
        append_line(self.history_path, {"time": now, **plan.sources, "cells": cells})

    def history(self) -> list[dict[str, list[str]]]:
        """Return the runs of each cell by its label, of every accepted file in order."""
        return [tree["cells"] for tree in read_lines(self.history_path)]

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    @property
    def figure_names_path(self) -> Path:
        """The file names of the figures that were drawn last, which outlive `drawn_path`."""
        return self.path / "figures.txt"

    @property
    def drawn_path(self) -> Path:
        """The file that is there while all figures are, and not while they are drawn."""
        return self.path / "drawn"

    @property
    def drawn(self) -> bool:
        """Whether the figures were drawn to the end."""
        return self.figures.exists() and self.drawn_path.exists()

    @property
    def time_left_path(self) -> Path:
        """The file in which a driver that is at work says how long it will take, for pages."""
        return self.path / "time_left"

    def time_left(self) -> str:
        """Return the time left as the terminal of the driver shows it; empty without a driver."""
        try:
            return self.time_left_path.read_text() if self.driven else ""
        except OSError:
            return ""

    @property
    def suggestions_path(self) -> Path:
        return self.path / "asked.jsonl"

    def seconds_spent(self) -> float:
        """Return how long the commands of the sweep have worked, in seconds."""
        return float(read_json(self.path / "spent.json") or 0.0)

    def add_suggestion(self, suggestion: Suggestion[Spec]) -> None:
        """Write a suggestion down before any of its runs starts."""
        trials = [trial.tree() for trial in suggestion.trials]
        append_line(self.suggestions_path, {**vars(suggestion), "trials": trials})

    def suggestions(self) -> list[Suggestion[Tree]]:
        """Return the suggestions in order."""
        suggestions = [
            Suggestion(tree["number"], tree["cell"], tuple(map(Trial.read, tree["trials"])))
            for tree in read_lines(self.suggestions_path)
        ]
        return sorted(suggestions, key=lambda suggestion: suggestion.number)

    def lock(self) -> AbstractContextManager[None]:
        """Lock the sweep against other drivers until the block, or the process, ends."""
        return exclusive(self.path / LOCK, f"sweep {self.name}")

    @property
    def driven(self) -> bool:
        """Whether a driver works at the sweep."""
        return is_held(self.path / LOCK)

    def plan(self) -> StoredPlan:
        """Return the plan with the trials that a search has suggested so far.

        Raises:
            UserError: there is none, it is damaged, or it is of another version.
        """
        plan = self.stored_plan()
        if plan is None:
            raise UserError(f"sweep {self.name} has no plan in {self.path}")
        return plan.with_suggested([entry.trials for entry in self.suggestions()])

    def stored_plan(self) -> StoredPlan | None:
        """Return the plan as it was written, `None` before that.

        Raises:
            UserError: it is damaged, or of another version.
        """
        return read_plan(self.plan_path)


def hours_text(folder: SweepFolder, hours: float | None) -> str:
    """Return the limit of a sweep with what of it is spent: `2 h (1.5 h spent)`; "" for none."""
    spent = folder.seconds_spent() / 3600
    return "" if hours is None else f"{hours:g} h ({float(f'{spent:.2g}'):g} h spent)"


class Stopwatch:
    """Measures this session and records the time of all sessions every few seconds."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.earlier = folder, folder.seconds_spent()
        self._started = self._written = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds of all sessions, this one included."""
        return self.earlier + time.monotonic() - self._started

    def note(self, *, now: bool = False) -> None:
        """Record the time, if the last record is old or `now` is set."""
        if now or time.monotonic() - self._written > _EVERY:
            self._written = time.monotonic()
            write_json(self.folder.path / "spent.json", round(self.seconds, 1))
