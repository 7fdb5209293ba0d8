"""The trials of a plan as a tracker shows them: one key each, and names that say what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tread_lab.spec.decode import decode
from tread_lab.spec.run import RunSpec

ROUTE_KEYS = frozenset({"start", "end", "rate", "route", "routes"})  # told by the route itself


@dataclass(frozen=True)
class Trial:
    """One trial of a plan: role, cell and seed, the run it asks for and that run's baseline."""

    sweep: str
    role: str
    run: str
    cell: Mapping[str, Any]
    seed: int
    baseline: str | None
    tree: Mapping[str, Any]

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
    found: dict[str, Trial] = {}
    for tree in plan["trials"]:
        trial = Trial(
            sweep=sweep,
            role=tree["role"],
            run=tree["run"],
            cell=tree["cell"],
            seed=tree["seed"],
            baseline=tree["baseline"],
            tree=tree["spec"],
        )
        found.setdefault(trial.key, trial)
    return list(found.values())


def cell_name(trial: Trial, spec: RunSpec) -> str:
    """What the seeds of a cell share: `2->8 s=0.5`, `dense`, `2->8 s=0.5 precision=fp32`."""
    others = (
        f"{name.rpartition('.')[2]}={value}"
        for name, value in trial.cell.items()
        if name not in ROUTE_KEYS
    )
    label = " ".join((_route_name(trial, spec), *others))
    return f"baseline {label}" if trial.role == "baseline" and spec.routes else label


def run_name(trial: Trial, spec: RunSpec) -> str:
    """`2->8 s=0.5 seed 0`."""
    return f"{cell_name(trial, spec)} seed {trial.seed}"


def _route_name(trial: Trial, spec: RunSpec) -> str:
    if not spec.routes:
        cell = trial.cell
        return f"{cell['start']}->{cell['end']} s=0" if {"start", "end"} <= set(cell) else "dense"
    rates = {route.rate for route in spec.routes}
    if len(rates) == 1:
        return " + ".join(map(str, spec.routes)) + f" s={rates.pop():g}"
    return " + ".join(f"{route} s={route.rate:g}" for route in spec.routes)
