"""The immutable plan of a sweep: its trials, what they cost, and what is done of them."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tread_lab.engine.cost.training import cost
from tread_lab.records import stopped_early
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.specs.cell import Cell
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, decode_evaluations
from tread_lab.specs.expansion import Expansion, Hole, Trial, expand
from tread_lab.specs.sweep import BudgetSpec, Experiment, SearchSpec, StopEarlySpec, SweepSpec
from tread_lab.specs.trials import SharedParts
from tread_lab.sweep.plan.difference import difference
from tread_lab.sweep.plan.disk import disk_need
from tread_lab.sweep.plan.goals import objectives_of
from tread_lab.sweep.trial.task import Task, is_complete, with_ancestors


@dataclass(frozen=True)
class Searched:
    """What a search chooses from.

    Attributes:
        spec: how it chooses.
        objectives: what is to become good, written out.
        cells: every cell, none of them a hole.
    """

    spec: SearchSpec
    objectives: tuple[str, ...]
    cells: tuple[Cell, ...]
    trials: Mapping[str, tuple[Trial, ...]] = field(repr=False)

    @property
    def all_trials(self) -> Iterator[Trial]:
        """The runs of every cell; those that cells share come again."""
        return (trial for own in self.trials.values() for trial in own)

    def trials_of(self, cell: Cell) -> list[Trial]:
        """The runs of a cell, one a seed, those they are compared with first."""
        return list(self.trials[repr(cell)])


@dataclass(frozen=True)
class Plan:
    """Every trial of a sweep in order, baselines first; holes and duplicates are counted, named.

    Under a search these are the baselines that all cells share and the trials asked for so far;
    `search` is there in a plan that was made, not in one that was read.
    """

    name: str
    question: str
    experiment: str
    trials: tuple[Trial, ...]
    holes: tuple[Hole, ...]
    evaluations: tuple[EvaluationSpec, ...]
    tree: dict[str, Any]
    duplicates: tuple[Hole, ...] = ()
    search: Searched | None = None
    versions: tuple[str, ...] = ()
    budget: BudgetSpec | None = None
    stop_early: StopEarlySpec | None = None

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """Distinct runs in order, parents first: a run that several trials share, or that several
        runs start from, is carried out once."""
        specs = {trial.run: trial.spec for trial in self.trials}
        return with_ancestors(Task(spec, self.evaluations) for spec in specs.values())

    @property
    def parents(self) -> int:
        """How many runs are no trials, and others start from them."""
        return len(self.tasks) - len({trial.run for trial in self.trials})

    @cached_property
    def possible_tasks(self) -> tuple[Task, ...]:
        """Every run that may come: under a search those of all cells."""
        if self.search is None:
            return self.tasks
        specs = {trial.run: trial.spec for trial in self.search.all_trials}
        return with_ancestors(Task(spec, self.evaluations) for spec in specs.values())

    @property
    def baselines_first(self) -> dict[str, str]:
        """Run -> the baseline that must have ended before it starts: it is judged against it."""
        if self.stop_early is None:
            return {}
        offered = self.trials if self.search is None else self.search.all_trials
        return {trial.run: trial.baseline for trial in offered if trial.baseline}

    def open_tasks(self, lab: Lab) -> list[Task]:
        """Tasks with something left to do."""
        return self.open_of(lab, self.tasks)

    def open_of(self, lab: Lab, tasks: Iterable[Task]) -> list[Task]:
        """Those of `tasks` with something left to do; what this sweep has stopped early has not."""
        before = stopped_early.read(lab.sweep(self.name).stopped_path) if self.stop_early else {}
        return [t for t in tasks if t.run not in before and not is_complete(lab, t)]

    @property
    def train_flops(self) -> int:
        return sum(cost(task.spec).train_flops for task in self.tasks)

    @property
    def disk_bytes(self) -> int:
        """What the runs may leave on the disk: checkpoints, samples, features of references."""
        return disk_need(self.tasks).total


def make_plan(
    name: str, sweep: SweepSpec, experiment: Experiment, facts: Mapping[str, Any] | None = None
) -> Plan:
    """Expand a sweep into its plan; nothing is written.

    Args:
        facts: further names that the sweep's `where` may use.
    """
    found = expand(sweep, experiment, facts)
    searched = None if sweep.search is None else _searched(sweep, sweep.search, found)
    return Plan(
        name=name,
        question=sweep.question,
        experiment=experiment.name,
        trials=found.trials if searched is None else _shared(searched),
        search=searched,
        budget=sweep.budget,
        stop_early=sweep.stop_early,
        holes=found.holes,
        duplicates=found.duplicates,
        evaluations=found.evaluations,
        tree={"sweep": encode(sweep), "experiment": encode(experiment)},
    )


def _searched(sweep: SweepSpec, spec: SearchSpec, expansion: Expansion) -> Searched:
    """The cells of an expansion, each with its runs and their baselines."""
    trials = expansion.trials
    runs = {trial.run: trial for trial in trials if trial.role == "baseline"}
    found: dict[str, dict[str, Trial]] = {}
    cells: dict[str, Cell] = {}
    for trial in (trial for trial in trials if trial.role == "trial"):
        cells[repr(trial.cell)] = trial.cell
        own = found.setdefault(repr(trial.cell), {})
        if trial.baseline in runs:
            own[trial.baseline] = runs[trial.baseline]
        own[trial.run] = trial
    ordered = {
        name: tuple(sorted(own.values(), key=lambda trial: trial.role != "baseline"))
        for name, own in found.items()
    }
    sources = {trial.spec.data.source for trial in trials}
    objectives = objectives_of(spec, sweep, expansion.evaluations, sources)
    return Searched(spec, objectives, tuple(cells.values()), ordered)


def _shared(searched: Searched) -> tuple[Trial, ...]:
    """The baselines that every cell is compared with."""
    first, *others = searched.trials.values()
    shared = [trial for trial in first if trial.role == "baseline"]
    return tuple(t for t in shared if all(any(o.run == t.run for o in own) for own in others))


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write the plan, once; one that extends the stored plan replaces it, which is kept beside it.

    Raises:
        UserError: the sweep was planned before with other trials or evaluations.
    """
    stored, now = folder.stored_plan(), time.time()
    if stored is None:
        write_text(folder.plan_path, to_stored(plan, created=now).text())
    elif list(plan.versions[:-1]) == versions(stored):
        folder.keep_plan()
        extended = (*stored.extended, now)
        text = to_stored(plan, created=stored.created, extended=extended).text()
        write_text(folder.plan_path, text)
    elif plan.versions != tuple(versions(stored)):
        check_plan(folder, plan)


def check_plan(folder: SweepFolder, plan: Plan) -> None:
    """Refuse a different plan under the name of an earlier one.

    Raises:
        UserError: the sweep was planned before with other trials or evaluations; says which.
    """
    stored = folder.stored_plan()
    if stored is None or is_stored(stored, plan) or version_of(plan) in versions(stored):
        return
    changes = difference(stored, to_stored(plan))
    raise UserError(
        f"sweep {plan.name!r} was planned with other settings: {changes};"
        " --extend adds what is new, another --name keeps both"
    )


def is_stored(stored: StoredPlan, plan: Plan) -> bool:
    """Whether a stored plan is this one: the same runs, compared and measured in the same way."""
    return bool(_identity(stored) == _identity_of(plan))


def version_of(plan: Plan) -> str:
    """A short name of what a plan runs and measures."""
    return _version(_identity_of(plan))


def versions(stored: StoredPlan) -> list[str]:
    """The versions of the sweep file that a stored plan was made from, one after another."""
    return list(stored.versions) or [_version(_identity(stored))]


def _version(identity: Any) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def load_plan(folder: SweepFolder) -> Plan:
    """The plan that was stored."""
    stored, decoded = folder.plan(), SharedParts().run
    return Plan(
        name=stored.name,
        question=stored.question,
        experiment=stored.experiment,
        trials=tuple(
            Trial(t.role, t.cell, t.seed, decoded(t.spec), t.run, t.baseline) for t in stored.trials
        ),
        holes=stored.holes,
        duplicates=stored.duplicates,
        evaluations=decode_evaluations(stored.evaluations_as_written),
        tree=dict(stored.sources),
        versions=tuple(versions(stored)),
    )


def to_stored(
    plan: Plan, *, created: float | None = None, extended: tuple[float, ...] = ()
) -> StoredPlan:
    """The plan as `plan.json` holds it.

    Args:
        created, extended: when it was written first, and again, in seconds.
    """
    return StoredPlan(
        name=plan.name,
        question=plan.question,
        experiment=plan.experiment,
        trials=tuple(map(StoredTrial.of, plan.trials)),
        evaluate=tuple(encode(plan.evaluations)),
        sources=plan.tree,
        holes=plan.holes,
        duplicates=plan.duplicates,
        search=None if plan.search is None else _search_tree(plan.search),
        versions=plan.versions,
        space=() if plan.search is None else tuple(encode(plan.search.cells)),
        created=created,
        extended=extended,
    )


def _search_tree(searched: Searched) -> dict[str, Any]:
    """How a search chooses and from what; how many trials it makes may change."""
    settings = {k: v for k, v in encode(searched.spec).items() if k != "trials"}
    cells = "\n".join(searched.trials)
    space = {"cells": len(searched.cells), "checksum": f"{zlib.crc32(cells.encode()):08x}"}
    return {**settings, "objectives": list(searched.objectives), "space": space}


def _identity(stored: StoredPlan) -> Any:
    """What must not change under one name: which runs, compared with what, measured how."""
    return [*stored.evaluate], stored.search, [(t.run, t.baseline) for t in stored.trials]


def _identity_of(plan: Plan) -> Any:
    """The same of a plan in memory."""
    search = None if plan.search is None else _search_tree(plan.search)
    return encode(plan.evaluations), search, [(t.run, t.baseline) for t in plan.trials]
