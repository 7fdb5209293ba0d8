"""The folder of one sweep: its plan, and what was suggested and spent meanwhile."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Generic

from tread_lab.config.decode import decode, encode
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import EvaluationDefaults, decode_evaluations, end_signature
from tread_lab.config.labels import (
    AnySpec,
    Cell,
    ExcludedCells,
    Spec,
    Tree,
    Trial,
    ancestors,
    cell_label,
    with_baseline_cells,
)
from tread_lab.config.registry import import_plugins
from tread_lab.config.sweep import (
    QUESTIONS,
    UNEQUAL,
    SearchSpec,
    StopEarlySpec,
    follows_length,
    written_shares,
)
from tread_lab.records.durable import (
    FORMAT,
    append_line,
    modified,
    of_format,
    read_json,
    read_lines,
    write_json,
)
from tread_lab.records.locks import exclusive, is_held
from tread_lab.records.run_folder import LOCK

_EVERY = 15.0  # seconds between two records of the time; what a kill can lose


@dataclass(frozen=True)
class PlanOf(Generic[AnySpec]):
    """The content of a plan file, with runs as specs or, when read, as trees.

    Attributes:
        excluded: counts of excluded cells by rule.
        sources: trees of the sweep file (`sweep`) and of its experiment (`experiment`).
        evaluate: the tree of every evaluation, with its `kind`.
        search: settings and space of a search; `None` for a sweep of all cells.
        space: cells available to a search.
        suggested: number of suggested cells.
        created: time of the first plan under this name, in seconds.
    """

    name: str
    question: str = ""
    experiment: str = ""
    trials: tuple[Trial[AnySpec], ...] = ()
    evaluate: tuple[Tree, ...] = ()
    sources: Tree = field(default_factory=dict)
    excluded: tuple[ExcludedCells, ...] = ()
    search: Tree | None = None
    space: tuple[Cell, ...] = ()
    suggested: int = 0
    created: float | None = None

    @property
    def sweep_file(self) -> Tree:
        """The tree of the sweep file, defaults filled in."""
        return self.sources.get("sweep") or {}

    @property
    def match(self) -> str | None:
        """The cost in which trials equal their baseline; `None` for steps as written."""
        match: str | None = self.sweep_file.get("match")
        return match

    @property
    def hours(self) -> float | None:
        """Time limit of the sweep in hours; `None` without a limit."""
        hours: float | None = self.sweep_file.get("hours")
        return hours

    @cached_property
    def stop_early(self) -> StopEarlySpec | None:
        """Settings of early stopping, or `None`."""
        written = self.sweep_file.get("stop_early")
        return None if written is None else decode(StopEarlySpec, written)

    @property
    def wanted(self) -> int:
        """Number of trials of a search by its sweep file; 0 without a search."""
        if self.search is None:
            return 0
        return int((self.sweep_file.get("search") or {}).get("trials", SearchSpec.trials))

    @property
    def to_suggest(self) -> int:
        """Number of suggestions still to come."""
        return max(0, min(self.wanted, len(self.space) or self.wanted) - self.suggested)

    @cached_property
    def axes(self) -> list[str]:
        """The axes that trials set, in the order of the plan."""
        trials = (trial for trial in self.trials if trial.role != "control")
        return list(dict.fromkeys(axis for trial in trials for axis in trial.cell))

    @cached_property
    def comparison(self) -> str:
        """What was held equal in comparisons with baselines; "" without baselines."""
        steps = {trial.run: trial.steps for trial in self.trials}
        pairs = {(t.steps, steps.get(t.baseline)) for t in self.trials if t.baseline}
        if self.match is None and any(own != dense for own, dense in pairs):
            return UNEQUAL
        return QUESTIONS[self.match] if pairs else ""

    def follows_length(self: StoredPlan, trial: Trial[Tree]) -> str:
        """Return why a checkpoint of a trial differs from a shorter run; "" if it does not."""
        return follows_length(trial.spec, self._written_shares)

    @cached_property
    def _written_shares(self) -> set[tuple[str, float]]:
        return written_shares([self.sources, *(trial.cell for trial in self.trials)])

    @property
    def base(self) -> Tree:
        """The tree of the experiment that the sweep varies."""
        return self.sources.get("experiment") or {}

    @property
    def planned(self) -> list[str]:
        """The signatures of the sweep's evaluations, in order.

        An evaluation at several steps has the signature of its last step.
        """
        return list(dict.fromkeys(map(end_signature, self.evaluate)))

    @property
    def evaluations_as_written(self) -> list[dict[str, Any]]:
        """The evaluations as a sweep file lists them: `{heldout_loss: {images: 512}}`."""
        return [
            {spec["kind"]: {name: x for name, x in spec.items() if name != "kind"}}
            for spec in self.evaluate
        ]

    @cached_property
    def evaluation_defaults(self) -> EvaluationDefaults:
        """Evaluation defaults: the experiment's sampler and reference, and the first probe of each
        kind in the sweep, else in the experiment.
        """
        said = {name: self.base[name] for name in ("sampler", "reference") if name in self.base}
        usual = decode(EvaluationDefaults, said)
        probes = [item for item in self.evaluations_as_written if "samples" not in item]
        written = [*probes, *(self.base.get("evaluate") or ())]
        return usual.with_probes(decode_evaluations(written, usual))

    @property
    def baselines(self) -> list[str]:
        """The distinct baseline runs."""
        return list(dict.fromkeys(t.baseline for t in self.trials if t.baseline))

    def runs(self) -> dict[str, AnySpec]:
        """Return the spec of every distinct run by name, in order, parents before children."""
        specs: dict[str, AnySpec] = {}
        for trial in self.trials:
            for name, spec in ancestors(trial.spec):
                specs.setdefault(name, spec)
            specs.setdefault(trial.run, trial.spec)
        return specs

    def with_suggested(self: StoredPlan, cells: Sequence[Sequence[Trial[Tree]]]) -> StoredPlan:
        """Return the plan with the trials of suggested cells, each run once."""
        runs, suggested = {trial.run for trial in self.trials}, dict[str, Trial[Tree]]()
        for trial in chain.from_iterable(cells):
            if trial.run not in runs:
                suggested.setdefault(trial.run, trial)
        trials = (*self.trials, *suggested.values())
        return replace(self, trials=trials, suggested=len(cells))

    @cached_property
    def with_baseline_cells(self) -> PlanOf[AnySpec]:
        """The plan with `labels.with_baseline_cells` of its trials."""
        return replace(self, trials=with_baseline_cells(self.trials))

    def tree(self) -> dict[str, Any]:
        """Return the plan as in `plan.json`, without suggestions."""
        kept = [one.name for one in fields(PlanOf) if one.name not in ("trials", "suggested")]
        trials = [trial.tree() for trial in self.trials]
        return {
            "format": FORMAT,
            **{name: encode(getattr(self, name)) for name in kept},
            "trials": trials,
        }

    def text(self) -> str:
        return plan_text(self.tree())


StoredPlan = PlanOf[Tree]


def plan_text(tree: Tree) -> str:
    """Return the JSON of a plan, one line per trial."""
    head = [f' "{key}": {json.dumps(value)},\n' for key, value in tree.items() if key != "trials"]
    rows = ",\n  ".join(map(json.dumps, tree["trials"]))
    return "".join(["{\n", *head, ' "trials": [\n  ', rows, "\n ]\n}\n"])


def read_plan(path: Path) -> StoredPlan | None:
    """Return the plan in a file, `None` if there is no file.

    Raises:
        UserError: the file is not JSON, or of another format.
    """
    tree = read_json(path)
    if tree is None:
        return None
    tree = of_format(tree, path)
    for trial in tree["trials"][:1]:  # all have those of the file
        import_plugins(trial["spec"].get("execution", {}).get("plugins", ()))
    parts: dict[str, Callable[[Any], Any]] = {
        "trials": Trial.read,
        "excluded": _excluded,
    }
    read = {one.name: tree[one.name] for one in fields(PlanOf) if one.name in tree}
    for name, value in read.items():
        if isinstance(value, list):
            read[name] = tuple(map(parts.get(name, lambda part: part), value))
    return StoredPlan(**read)


def _excluded(tree: Tree) -> ExcludedCells:
    return ExcludedCells(tree["rule"], tree["count"], tuple(tree["examples"]))


@dataclass(frozen=True)
class Suggestion(Generic[AnySpec]):
    """One cell that a search chose.

    Attributes:
        number: index of the suggestion, from 0.
        cell: its axis values.
        trials: its trials, including baselines that only this cell needs.
    """

    number: int
    cell: Cell
    trials: tuple[Trial[AnySpec], ...]


@dataclass(frozen=True)
class SweepFolder:
    """One sweep: its newest plan and files derived from its runs."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def plan_path(self) -> Path:
        return self.path / "plan.json"

    @property
    def stamp(self) -> tuple[float | None, float | None]:
        """Times of the last plan and of the last suggestion, in seconds."""
        return modified(self.plan_path), modified(self.suggestions_path)

    @property
    def history_path(self) -> Path:
        return self.path / "history.jsonl"

    def add_accepted(self, plan: PlanOf[AnySpec], now: float) -> None:
        """Append an accepted file: time, trees, and runs of its cells.

        Args:
            now: in seconds.
        """
        cells: dict[str, list[str]] = {}
        for trial in plan.with_baseline_cells.trials:
            if trial.role == "trial" and trial.run != trial.baseline:
                cells.setdefault(cell_label(trial), []).append(trial.run)
        append_line(self.history_path, {"time": now, **plan.sources, "cells": cells})

    def history(self) -> list[dict[str, list[str]]]:
        """Return, for every accepted file in order, the runs of each cell by label."""
        return [tree["cells"] for tree in read_lines(self.history_path)]

    @property
    def figures(self) -> Path:
        """The folder of figures and tables; complete if it exists."""
        return self.path / "figures"

    def remove_figures(self) -> None:
        """Remove the folder of figures."""
        shutil.rmtree(self.figures, ignore_errors=True)

    @property
    def time_left_path(self) -> Path:
        """The file in which a running driver records its remaining time, for pages."""
        return self.path / "time_left"

    def time_left(self) -> str:
        """Return the remaining time shown by the driver; empty without a driver."""
        try:
            return self.time_left_path.read_text() if self.driven else ""
        except OSError:
            return ""

    @property
    def suggestions_path(self) -> Path:
        return self.path / "asked.jsonl"

    def seconds_spent(self) -> float:
        """Return the total time of the sweep's commands, in seconds."""
        return float(read_json(self.path / "spent.json") or 0.0)

    def add_suggestion(self, suggestion: Suggestion[Spec]) -> None:
        """Record a suggestion, before its runs start."""
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
        """Whether a driver is running the sweep."""
        return is_held(self.path / LOCK)

    def plan(self) -> StoredPlan:
        """Return the plan with the trials that a search has suggested so far.

        Raises:
            UserError: the plan is missing, damaged or of another version.
        """
        plan = self.stored_plan()
        if plan is None:
            raise UserError(f"sweep {self.name} has no plan in {self.path}")
        return plan.with_suggested([entry.trials for entry in self.suggestions()])

    def stored_plan(self) -> StoredPlan | None:
        """Return the plan as written, or `None`.

        Raises:
            UserError: the plan is damaged or of another version.
        """
        return read_plan(self.plan_path)


def hours_text(folder: SweepFolder, hours: float | None) -> str:
    """Return the time limit and its spent part: `2 h (1.5 h spent)`; "" without a limit."""
    spent = folder.seconds_spent() / 3600
    return "" if hours is None else f"{hours:g} h ({float(f'{spent:.2g}'):g} h spent)"


class Stopwatch:
    """Measures this session, and records the total time of all sessions every few seconds."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder, self.earlier = folder, folder.seconds_spent()
        self._started = self._written = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds of all sessions, this one included."""
        return self.earlier + time.monotonic() - self._started

    def note(self, *, now: bool = False) -> None:
        """Record the time, if the last record is old or `now` is true."""
        if now or time.monotonic() - self._written > _EVERY:
            self._written = time.monotonic()
            write_json(self.folder.path / "spent.json", round(self.seconds, 1))
