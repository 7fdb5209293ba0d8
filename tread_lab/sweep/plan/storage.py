"""Stores a plan and the file that it was made from, loads it, and refuses another sweep's name."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tread_lab.config.cell import SharedParts, Spec, Trial
from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.cost.training import cost
from tread_lab.records.durable import write_text
from tread_lab.records.stored_plan import PlanOf
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.sweep.plan.plan import Plan


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write a plan and append it to the sweep's history, unless it is the stored one.

    Raises:
        UserError: as `check_edit`.
    """
    check_edit(folder, plan)
    stored, now = folder.stored_plan(), time.time()
    written = dataclasses.replace(plan, created=now if stored is None else stored.created)
    if stored is not None and stored.text() == written.text():
        return
    folder.drawn_path.unlink(missing_ok=True)  # figures are of the former plan
    folder.add_accepted(written, now)
    write_text(folder.plan_path, written.text())


def check_edit(folder: SweepFolder, plan: Plan) -> None:
    """Refuse a file that is another sweep than the stored plan of its name.

    Raises:
        UserError: no run is in both, or a search has other cells, evaluations or settings.
    """
    stored = folder.stored_plan()
    if stored is None:
        return
    if plan.search is not None or stored.search is not None:
        if _searched(stored) != _searched(plan):
            raise UserError(
                f"search: must stay as planned under {plan.name!r} but for trials and hours. Try"
                " another --name."
            )
    elif not {trial.run for trial in stored.trials} & {trial.run for trial in plan.trials}:
        raise UserError(
            f"--name: must be new where no run is shared, got {plan.name!r}. Try another --name."
        )


def _searched(plan: PlanOf[Spec]) -> Any:
    """Return what must not change under the name of a search."""
    evaluations = [_without_path(tree) for tree in plan.evaluate]
    return evaluations, plan.search, [(t.run, t.baseline) for t in plan.trials]


def _without_path(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of an evaluation without the place of its reference, which is not signed."""
    if not evaluation.get("reference"):
        return evaluation
    return {**evaluation, "reference": {"name": evaluation["reference"]["name"]}}


def load_plan(folder: SweepFolder) -> Plan:
    """Return the stored plan, its specs decoded.

    Raises:
        UserError: there is none, or it cannot be read; names its file.
    """
    stored, decoded = folder.plan(), SharedParts().run
    fields = {field.name: getattr(stored, field.name) for field in dataclasses.fields(stored)}
    try:
        trials = [Trial(**{**vars(t), "spec": decoded(t.spec)}) for t in stored.trials]
        plan = Plan(**{**fields, "trials": tuple(trials)})
        assert plan.evaluations is not None  # decoded here
    except UserError as error:
        raise error.at(str(folder.plan_path)) from None
    return plan


def plan_with_costs(plan: Plan) -> dict[str, Any]:
    """Return `plan.json` with counts and costs, the same bytes on every machine at any time."""
    specs = {task.run: task.spec for task in plan.tasks}
    roles = Counter(trial.role for trial in plan.trials)
    counts = {
        "trials": roles["trial"],
        "baselines": roles["baseline"],
        "controls": roles["control"],
        "parents": plan.parents,
        "runs": len(specs),
        "evaluations": len(plan.evaluations),
        "holes": sum(hole.count for hole in plan.excluded),
        "duplicates": sum(same.count for same in plan.duplicates),
    }
    costs = {"train_flops": plan.train_flops, "disk_bytes": plan.disk_bytes}
    runs = {run: _price(spec) for run, spec in specs.items()}
    tree = dataclasses.replace(plan, created=None).tree()
    return {**tree, "counts": counts, "cost": costs, "runs": runs}


_PRICES = ("parameters", "train_flops", "speedup", "checkpoint_bytes")


def _price(spec: RunSpec) -> dict[str, float]:
    return {name: round(getattr(cost(spec), name), 4) for name in _PRICES}
