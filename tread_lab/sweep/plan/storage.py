"""Stores a plan in its sweep's folder, loads it, and refuses another plan under its name."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Mapping
from typing import Any

from tread_lab.records.durable import write_text
from tread_lab.records.lab import SweepFolder
from tread_lab.records.metric_names import heldout_named
from tread_lab.records.plan import StoredPlan, StoredTrial
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import decode_evaluations
from tread_lab.specs.trials import SharedParts, Trial
from tread_lab.sweep.plan.difference import difference
from tread_lab.sweep.plan.plan import Plan, SearchSpace


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write a new plan, or one that extends the stored plan; the stored plan is kept beside it.

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
    """Return whether both plan the same runs, compared and measured in the same way."""
    evaluations, search, runs = _identity_of(plan)
    if stored.search is not None and search is not None and "runs" not in stored.search["space"]:
        del search["space"]["runs"]  # of an earlier version
    return bool(_identity(stored) == (evaluations, search, runs))


def version_of(plan: Plan) -> str:
    """Return a short name of what a plan runs and measures."""
    return _version(_identity_of(plan))


def versions(stored: StoredPlan) -> list[str]:
    """Return the versions of the sweep file that a stored plan was made from, in order."""
    return list(stored.versions) or [_version(_identity(stored))]


def _version(identity: Any) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]


def load_plan(folder: SweepFolder) -> Plan:
    """Return the stored plan, its specs decoded.

    Raises:
        UserError: there is none, or it cannot be read; names its file.
    """
    stored = folder.plan()
    try:
        return _decoded(stored)
    except UserError as error:
        raise error.at(str(folder.plan_path)) from None


def _decoded(stored: StoredPlan) -> Plan:
    decoded = SharedParts().run
    return Plan(
        name=stored.name,
        question=stored.question,
        experiment=stored.experiment,
        trials=tuple(
            Trial(t.role, t.cell, t.seed, decoded(t.spec), t.run, t.baseline) for t in stored.trials
        ),
        excluded=stored.excluded,
        duplicates=stored.duplicates,
        evaluations=decode_evaluations(stored.evaluations_as_written),
        sources=dict(stored.sources),
        versions=tuple(versions(stored)),
    )


def to_stored(
    plan: Plan, *, created: float | None = None, extended: tuple[float, ...] = ()
) -> StoredPlan:
    """Return the plan as `plan.json` holds it.

    Args:
        created, extended: when it was written first, and again, in seconds.
    """
    return StoredPlan(
        name=plan.name,
        question=plan.question,
        experiment=plan.experiment,
        trials=tuple(map(StoredTrial.of, plan.trials)),
        evaluate=tuple(encode(plan.evaluations)),
        sources=plan.sources,
        excluded=plan.excluded,
        duplicates=plan.duplicates,
        search=None if plan.search is None else _search_tree(plan.search),
        versions=plan.versions,
        space=() if plan.search is None else tuple(encode(plan.search.cells)),
        created=created,
        extended=extended,
    )


def _search_tree(searched: SearchSpace) -> dict[str, Any]:
    """Return how a search chooses and from what, without the number of trials, which may change."""
    settings = {k: v for k, v in encode(searched.spec).items() if k != "trials"}
    cells = "\n".join(searched.trials)
    runs = "\n".join(sorted({trial.run for own in searched.trials.values() for trial in own}))
    checksums = {"checksum": cells, "runs": runs}
    space = {name: f"{zlib.crc32(text.encode()):08x}" for name, text in checksums.items()}
    whole = {"cells": len(searched.cells), **space}
    return {**settings, "objectives": list(searched.objectives), "space": whole}


def _identity(stored: StoredPlan) -> Any:
    """Return what must not change under one name: evaluations, search, runs and baselines."""
    search = stored.search
    if search is not None and not any(tree.get("reference") for tree in stored.evaluate):
        objectives = [
            renamed for name in search["objectives"] for renamed in heldout_named({name: 0})
        ]
        search = {**search, "objectives": objectives}
    evaluations = [_without_path(tree) for tree in stored.evaluate]
    return evaluations, search, [(t.run, t.baseline) for t in stored.trials]


def _identity_of(plan: Plan) -> Any:
    search = None if plan.search is None else _search_tree(plan.search)
    evaluations = [_without_path(encode(spec)) for spec in plan.evaluations]
    return evaluations, search, [(t.run, t.baseline) for t in plan.trials]


def _without_path(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of an evaluation without the place of its reference, which is not signed."""
    if not evaluation.get("reference"):
        return evaluation
    return {**evaluation, "reference": {"name": evaluation["reference"]["name"]}}
