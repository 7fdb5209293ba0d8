"""The trials of a plan as a tracker shows them: one key each, and names that say what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.records.plan import StoredPlan
from tread_lab.specs.decode import decode
from tread_lab.specs.dotted import dotted
from tread_lab.specs.labels import cell_label
from tread_lab.specs.run import RunSpec

TOLD = ("routes", "seed", "execution.", "data.path")  # by the route, the seed, or not science


@dataclass(frozen=True)
class Trial:
    """One trial of a plan: role, cell and seed, the run it asks for and that run's baseline.

    Attributes:
        varied: dotted fields, routes and seed apart, in which the runs of the sweep differ.
        label: of the cell, shared by its seeds.
    """

    sweep: str
    role: str
    run: str
    cell: Mapping[str, Any]
    seed: int
    baseline: str | None
    tree: Mapping[str, Any]
    varied: Mapping[str, Any]
    label: str

    @property
    def key(self) -> str:
        """What tells this trial from every other one: sweep / role / run / cell."""
        cell = ",".join(f"{name}={value}" for name, value in sorted(self.cell.items()))
        return f"{self.sweep}/{self.role}/{self.run}/{cell}"

    @property
    def steps(self) -> int:
        return int(self.tree["train"]["steps"])

    def spec(self) -> RunSpec:
        return decode(RunSpec, self.tree)


def trials_of(sweep: str, plan: StoredPlan) -> list[Trial]:
    """The distinct trials of a plan, in its order."""
    fields = [dict(dotted(trial.spec)) for trial in plan.trials]
    varied = _varied(fields)
    found: dict[str, Trial] = {}
    labels = map(cell_label, plan.with_baseline_cells().trials)
    for stored, values, label in zip(plan.trials, fields, labels):
        trial = Trial(
            sweep=sweep,
            role=stored.role,
            run=stored.run,
            cell=stored.cell,
            seed=stored.seed,
            baseline=stored.baseline,
            tree=stored.spec,
            varied={name: values[name] for name in varied if name in values},
            label=label,
        )
        found.setdefault(trial.key, trial)
    return list(found.values())


def _varied(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values differ, in the order of the spec."""
    values: dict[str, set[str]] = defaultdict(set)
    for tree in fields:
        for name, value in tree.items():
            if not name.startswith(TOLD):
                values[name].add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]
