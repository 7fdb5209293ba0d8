"""The stored plan of a sweep, `plan.json`: its trials and evaluations as plain settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Generic

from tread_lab.config.decode import decode, encode
from tread_lab.config.evaluation import EvaluationDefaults, decode_evaluations, end_signature
from tread_lab.config.labels import (
    AnySpec,
    Cell,
    ExcludedCells,
    Tree,
    Trial,
    ancestors,
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
from tread_lab.records.durable import FORMAT, of_format, read_json


@dataclass(frozen=True)
class PlanOf(Generic[AnySpec]):
    """What the file of a plan holds, the runs by their specs or, as they are read, by their trees.

    Attributes:
        excluded: cells that are not planned, counted by the rule that they miss.
        sources: trees of the sweep file (`sweep`) and of its experiment (`experiment`).
        evaluate: the tree of every evaluation, with its `kind`.
        search: how a search chooses and from what; `None` for a sweep of all cells.
        space: the cells that a search chooses from.
        suggested: how many of them it has suggested.
        created: when a plan was first written under this name, in seconds.
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
        """What every trial spends as much of as its baseline; `None` where steps are as written."""
        match: str | None = self.sweep_file.get("match")
        return match

    @property
    def hours(self) -> float | None:
        """The hours that the command of the sweep may run; `None` without a limit."""
        hours: float | None = self.sweep_file.get("hours")
        return hours

    @cached_property
    def stop_early(self) -> StopEarlySpec | None:
        """How cells are stopped early; `None` where none is."""
        written = self.sweep_file.get("stop_early")
        return None if written is None else decode(StopEarlySpec, written)

    @property
    def wanted(self) -> int:
        """How many cells a search tries, by its sweep file; 0 without a search."""
        if self.search is None:
            return 0
        return int((self.sweep_file.get("search") or {}).get("trials", SearchSpec.trials))

    @property
    def to_suggest(self) -> int:
        """How many cells a search has yet to suggest."""
        return max(0, min(self.wanted, len(self.space) or self.wanted) - self.suggested)

    @cached_property
    def axes(self) -> list[str]:
        """The axes that trials set, in the order of the plan."""
        trials = (trial for trial in self.trials if trial.role != "control")
        return list(dict.fromkeys(axis for trial in trials for axis in trial.cell))

    @cached_property
    def comparison(self) -> str:
        """The question that differences to baselines answer; "" where there are no baselines."""
        steps = {trial.run: trial.steps for trial in self.trials}
        pairs = {(t.steps, steps.get(t.baseline)) for t in self.trials if t.baseline}
        if self.match is None and any(own != dense for own, dense in pairs):
            return UNEQUAL
        return QUESTIONS[self.match] if pairs else ""

    def follows_length(self: StoredPlan, trial: Trial[Tree]) -> str:
        """Return what makes a stage of a trial differ from a shorter run; "" where nothing does."""
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
        """The signatures of the evaluations that the sweep asks for, in its order.

        One at several steps has one signature: the one that it has at the end of a run.
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
        """What evaluations of the sweep leave unsaid: the experiment's sampler and reference, and
        the first probe of each kind that the sweep plans, else that of the experiment.
        """
        said = {name: self.base[name] for name in ("sampler", "reference") if name in self.base}
        usual = decode(EvaluationDefaults, said)
        probes = [item for item in self.evaluations_as_written if "samples" not in item]
        written = [*probes, *(self.base.get("evaluate") or ())]
        return usual.with_probes(decode_evaluations(written, usual))

    @property
    def baselines(self) -> list[str]:
        """The runs that others are compared with, each once."""
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
        """Return the plan with the trials of cells that a search has suggested, each run once."""
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
        """Return the plan as `plan.json` holds it; what a search has suggested stands elsewhere."""
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
    """Return the JSON of a plan, a trial a line: large ones are quick to compare."""
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
