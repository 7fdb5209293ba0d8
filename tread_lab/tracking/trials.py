"""The trials of a plan as a tracker shows them: one key each, and names that say what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.spec.decode import decode
from tread_lab.spec.run import RunSpec
from tread_lab.tracking.flat import flat

TOLD = ("routes", "seed", "execution.", "data.path")  # by the route, the seed, or not science


@dataclass(frozen=True)
class Trial:
    """One trial of a plan: role, cell and seed, the run it asks for and that run's baseline.

    Attributes:
        varied: dotted fields, routes and seed apart, in which the runs of the sweep differ.
    """

    sweep: str
    role: str
    run: str
    cell: Mapping[str, Any]
    seed: int
    baseline: str | None
    tree: Mapping[str, Any]
    varied: Mapping[str, Any]

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


def trials_of(sweep: str, plan: Mapping[str, Any]) -> list[Trial]:
    """The distinct trials of a plan, in its order."""
    trees: Sequence[Mapping[str, Any]] = plan["trials"]
    fields = [dict(flat(tree["spec"])) for tree in trees]
    varied = _varied(fields)
    found: dict[str, Trial] = {}
    for tree, values in zip(trees, fields):
        trial = Trial(
            sweep=sweep,
            role=tree["role"],
            run=tree["run"],
            cell=tree["cell"],
            seed=tree["seed"],
            baseline=tree["baseline"],
            tree=tree["spec"],
            varied={name: values[name] for name in varied if name in values},
        )
        found.setdefault(trial.key, trial)
    return list(found.values())


def cell_name(trial: Trial, spec: RunSpec) -> str:
    """What the seeds of a cell share: `2->8 s=0.5`, `dense`, `2->8 s=0.5 precision=fp32`."""
    label = " ".join((_route_name(trial, spec), *_others(trial, spec)))
    return f"baseline {label}" if trial.role == "baseline" and spec.routes else label


def run_name(trial: Trial, spec: RunSpec) -> str:
    """`2->8 s=0.5 seed 0`."""
    return f"{cell_name(trial, spec)} seed {trial.seed}"


def _varied(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names whose values differ, in the order of the spec."""
    values: dict[str, set[str]] = defaultdict(set)
    for tree in fields:
        for name, value in tree.items():
            if not name.startswith(TOLD):
                values[name].add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]


def _route_name(trial: Trial, spec: RunSpec) -> str:
    cell = trial.cell
    if not spec.routes:
        routed = {"start", "end"} <= set(cell)
        return f"{cell['start']}->{cell['end']} s=0" if routed else "dense"
    rates = {route.rate for route in spec.routes}
    if len(rates) == 1:
        return " + ".join(map(str, spec.routes)) + f" s={rates.pop():g}"
    return " + ".join(f"{route} s={route.rate:g}" for route in spec.routes)


def _others(trial: Trial, spec: RunSpec) -> list[str]:
    """The other axes; a model by its name."""
    model = any(name.startswith("model.") for name in trial.varied)
    others = [
        f"{name.rpartition('.')[2]}={value}"
        for name, value in trial.varied.items()
        if not name.startswith("model.")
    ]
    return [spec.model.name, *others] if model else others
