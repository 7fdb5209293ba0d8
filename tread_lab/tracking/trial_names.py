"""The trials of a plan as a tracker shows them: one key each, and names that say what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.specs.fields import dotted
from tread_lab.specs.labels import cell_label

TOLD = ("routes", "seed", "execution.", "data.path")  # by the route, the seed, or not science


@dataclass(frozen=True)
class Trial:
    """A trial of a plan as a tracker shows it.

    Attributes:
        key: what tells it from every other one: sweep / role / run / cell.
        stored: the trial, a baseline with the axis values that tell it from others.
        varied: dotted fields, routes and seed apart, in which the runs of the sweep differ.
        label: of the cell, shared by its seeds.
    """

    key: str
    stored: StoredTrial
    varied: Mapping[str, Any]
    label: str


def trials_of(sweep: str, plan: StoredPlan) -> list[Trial]:
    """Return the distinct trials of a plan, in its order."""
    fields = [dict(dotted(trial.spec)) for trial in plan.trials]
    varied = _varied(fields)
    trials: dict[str, Trial] = {}
    for planned, stored, values in zip(plan.trials, plan.with_baseline_cells().trials, fields):
        cell = ",".join(f"{name}={value}" for name, value in sorted(planned.cell.items()))
        key = f"{sweep}/{stored.role}/{stored.run}/{cell}"
        own = {name: values[name] for name in varied if name in values}
        trials.setdefault(key, Trial(key, stored, own, cell_label(stored)))
    return list(trials.values())


def _varied(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values differ, in the order of the spec."""
    values: dict[str, set[str]] = defaultdict(set)
    for tree in fields:
        for name, value in tree.items():
            if not name.startswith(TOLD):
                values[name].add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]
