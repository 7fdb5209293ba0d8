"""Several sweeps seen as one: what they share once, other cells with the sweeps that have them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tread_lab.records.plan import StoredPlan
from tread_lab.records.sweep_folder import Stopped, SweepFolder
from tread_lab.specs.cell import CellNames, Tree, Trial
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import (
    ROUTE_AXES,
    Kind,
    cell_label,
    kind_of,
    settings_of,
    value_text,
)
from tread_lab.specs.signature import signature

SWEEP = "sweep"  # the axis that tells in which sweeps a cell is
Place = tuple[str, int, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class SeveralSweeps(SweepFolder):
    """Several sweeps; nothing is written of them together, so their own folder is not there."""

    sweeps: tuple[SweepFolder, ...]

    @property
    def stamp(self) -> int:
        """Another number whenever one of the plans was written, or has come with an older time."""
        return sum(sweep.stamp for sweep in self.sweeps)

    @property
    def suggested(self) -> float:
        return sum(sweep.suggested for sweep in self.sweeps)

    def stored_plan(self) -> StoredPlan:
        """Return the united plan.

        Raises:
            UserError: one of the plans cannot be read.
        """
        return united([sweep.plan() for sweep in self.sweeps])

    def stopped(self) -> dict[str, Stopped]:
        """Return by run where each was stopped early last."""
        return {run: stop for sweep in self.sweeps for run, stop in sweep.stopped().items()}

    def differences(self) -> StoredPlan:
        """Return `between` of the plans."""
        return between([sweep.plan() for sweep in self.sweeps])


def united(plans: Sequence[StoredPlan]) -> StoredPlan:
    """Return the trials of several plans as one plan; a trial that several have is there once.

    Trials have one more axis, the sweeps that have a seed of their cell. Each keeps the baseline
    that it has.
    """
    trials: dict[tuple[str, str, str | None], Trial[Tree]] = {}
    settings = settings_of(trial for plan in plans for trial in plan.trials)
    named: dict[Kind, dict[str, None]] = {}
    for plan in plans:
        for trial in plan.trials:
            trials.setdefault((trial.role, trial.run, trial.baseline), trial)
            named.setdefault(kind_of(trial, settings), {})[plan.name] = None
    sweeps = {kind: ", ".join(names) for kind, names in named.items()}
    matches = {plan.match for plan in plans}
    created = [plan.created for plan in plans if plan.created]
    return StoredPlan(
        name=",".join(plan.name for plan in plans),
        question=" / ".join(dict.fromkeys(plan.question for plan in plans if plan.question)),
        experiment=plans[0].experiment,
        trials=tuple(
            trial
            if trial.role == "baseline"
            else replace(trial, cell={**trial.cell, SWEEP: sweeps[kind_of(trial, settings)]})
            for trial in trials.values()
        ),
        evaluate=tuple({signature(tree): tree for p in plans for tree in p.evaluate}.values()),
        sources={
            "sweep": {"match": matches.pop() if len(matches) == 1 else None},
            "experiment": plans[0].base,
            "earlier": [tree for plan in plans for tree in plan.sources.get("earlier", [])],
        },
        created=min(created, default=None),
    )


def between(plans: Sequence[StoredPlan]) -> StoredPlan:
    """Return a plan that compares the cells of other sweeps with the equal ones of the first.

    A trial's baseline is the run of the same cell and seed in the first sweep: where only one of
    both sweeps has an axis, the other's is what its run says. Runs that both share and cells that
    the first lacks are left out.
    """
    first, *others = (plan.with_baseline_cells for plan in plans)
    trials, pairs = first.trials, []
    for plan in others:
        axes = [*first.axes, *plan.axes]
        own = {_place(t, axes): t for t in trials} | {_place(t): t for t in trials}
        for trial in plan.trials:
            dense = own.get(_place(trial)) or own.get(_place(trial, axes))
            if dense is not None and dense.run != trial.run:
                pairs.append((dense, replace(trial, cell={**trial.cell, SWEEP: plan.name})))
    baselines = {dense.run: replace(dense, role="baseline", baseline=None) for dense, _ in pairs}
    paired = [replace(trial, role="trial", baseline=dense.run) for dense, trial in pairs]
    return replace(united(plans), trials=(*baselines.values(), *paired))


def _place(trial: Trial[Tree], axes: Iterable[str] = ()) -> Place:
    """Return route, seed and axis values of a trial, whatever order the axes have.

    Args:
        axes: further ones, of which it has the values that its run has.
    """
    told = (*ROUTE_AXES, "selection")  # by the label of the route
    route = {axis: value for axis, value in trial.cell.items() if axis in told}
    names = CellNames(trial.spec, trial.cell)
    values = {}
    for axis in {*trial.cell, *axes}.difference(told):
        with contextlib.suppress(KeyError, UserError):  # not all axes are fields
            values[axis] = value_text(names(axis))
    return cell_label(replace(trial, cell=route)), trial.seed, frozenset(values.items())
