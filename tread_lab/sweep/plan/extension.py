"""`--extend`: adds the new trials and evaluations of an edited sweep file to the stored plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.evaluation_text import evaluation_label
from tread_lab.specs.trials import QUESTIONS
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.plan.storage import (
    check_plan,
    in_short,
    is_stored,
    load_plan,
    new_trials,
    other_data,
    to_stored,
    version_of,
    versions,
)


def plan_to_run(folder: SweepFolder, plan: Plan, *, extend: bool = False) -> Plan:
    """Return the plan to run under a name: `plan`, a stored plan that contains it, or their union.

    Args:
        extend: whether to add to the stored plan what only `plan` has; nothing is written.

    Raises:
        UserError: another plan has the name, and `extend` is not set or not possible.
    """
    stored = folder.stored_plan()
    if stored is None or is_stored(stored, plan):
        return plan
    if version_of(plan) in versions(stored):
        return load_plan(folder)
    if not extend:
        check_plan(folder, plan)
    if plan.search is not None or stored.search is not None:
        raise UserError(
            f"sweep {plan.name!r}: a search is not extended; change search.trials alone,"
            " or give another --name"
        )
    if stored.match != plan.match:
        raise UserError(
            f"sweep {plan.name!r} compares {QUESTIONS[stored.match]}, and this file"
            f" {QUESTIONS[plan.match]}: give another --name"
        )
    for change in other_data(stored, to_stored(plan)):
        raise UserError(f"sweep {plan.name!r}: {change}; other data are no extension: --name")
    union = extended(load_plan(folder), plan)
    return dataclasses.replace(union, versions=(*versions(stored), version_of(plan)))


def extended(stored: Plan, plan: Plan) -> Plan:
    """Return a plan with all trials and evaluations of `stored`, then those only `plan` has.

    Baselines come first, and a stored run keeps its cell.
    """
    union = [*stored.trials, *new_trials(stored.trials, plan.trials)]
    trials = tuple(sorted(union, key=lambda trial: trial.role != "baseline"))
    evaluations = _all_evaluations(stored.evaluations, plan.evaluations)
    sources = plan.sources
    if new_trials(plan.trials, stored.trials) or set(evaluations) != set(plan.evaluations):
        earlier = {k: v for k, v in stored.sources.items() if k != "earlier"}
        sources = {**sources, "earlier": [*stored.sources.get("earlier", []), earlier]}
    return dataclasses.replace(plan, trials=trials, evaluations=evaluations, sources=sources)


def what_is_added(stored: Plan, plan: Plan) -> str:
    """Describe an extension: `adds 4 trials (s=0.75 ...), 1 baseline; 17 trials as before`."""
    new = new_trials(stored.trials, plan.trials)
    trials = [trial for trial in new if trial.role == "trial"]
    others = [encode(e) for e in plan.evaluations if e not in stored.evaluations]
    parts = [f"{counted(len(trials), 'trial')} ({in_short(trials)})"] if trials else []
    parts += [counted(len(new) - len(trials), "baseline")] if len(new) > len(trials) else []
    parts += [f"{evaluation_label(tree)} for every run" for tree in others]
    return f"adds {', '.join(parts) or 'nothing'}; {counted(len(stored.trials), 'trial')} as before"


def _all_evaluations(
    stored: Sequence[EvaluationSpec], new: Iterable[EvaluationSpec]
) -> tuple[EvaluationSpec, ...]:
    """Return the stored evaluations unchanged, then the new ones.

    Stored evaluations keep their signatures, so that no run is evaluated twice. A new evaluation of
    the images of a stored one has only the metrics that are new.
    """
    evaluations = list(stored)
    for spec in new:
        if isinstance(spec, SamplesSpec):
            samples = [other for other in stored if isinstance(other, SamplesSpec)]
            same_images = [other for other in samples if _images(other) == _images(spec)]
            measured = {metric for other in same_images for metric in other.metrics}
            metrics = tuple(metric for metric in spec.metrics if metric not in measured)
            if same_images and not metrics:
                continue
            spec = dataclasses.replace(spec, metrics=metrics)
        if spec not in evaluations:
            evaluations.append(spec)
    return tuple(evaluations)


def _images(spec: SamplesSpec) -> object:
    """Return what decides which images an evaluation samples, and what they are compared with."""
    return spec.count, spec.sampler, spec.step, spec.reference and spec.reference.name
