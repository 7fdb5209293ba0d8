"""A sweep file that was edited: the stored plan is kept, and what is new is added when asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from tread_lab.records.lab import SweepFolder
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.expansion import Trial
from tread_lab.specs.wording import counted
from tread_lab.sweep.plan.difference import evaluation_name, in_short
from tread_lab.sweep.plan.plan import Plan, check_plan, is_stored, load_plan, version_of, versions


def settled(folder: SweepFolder, plan: Plan, *, extend: bool = False) -> Plan:
    """The plan to carry out under a name: this one, the stored one it is a part of, or both.

    Args:
        extend: add to the stored plan what only this one has; nothing is written.

    Raises:
        UserError: another plan has the name, and `extend` is not asked for or not possible.
    """
    before = folder.read_stored_plan()
    if before is None or is_stored(before, plan):
        return plan
    if version_of(plan) in versions(before):
        return load_plan(folder)
    if not extend:
        check_plan(folder, plan)
    if plan.search is not None or before.get("search"):
        raise UserError(
            f"sweep {plan.name!r}: a search is not extended; change search.trials alone,"
            " or give another --name"
        )
    both = extended(load_plan(folder), plan)
    return dataclasses.replace(both, versions=(*versions(before), version_of(plan)))


def extended(before: Plan, plan: Plan) -> Plan:
    """All trials and evaluations of `before`, then those that only `plan` has."""
    trials = _together(before.trials, plan.trials)
    evaluations = _measured(before.evaluations, plan.evaluations)
    tree = plan.tree
    if len(trials) > len(_keys(plan.trials)) or set(evaluations) != set(plan.evaluations):
        earlier = {k: v for k, v in before.tree.items() if k != "earlier"}
        tree = {**tree, "earlier": [*before.tree.get("earlier", []), earlier]}
    return dataclasses.replace(plan, trials=trials, evaluations=evaluations, tree=tree)


def what_is_added(before: Plan, plan: Plan) -> str:
    """`4 trials (rate=0.75, seed 0; ...), 1 baseline and fd@5000 for all; 17 trials stay`."""
    known = _keys(before.trials)
    new = [trial for trial in plan.trials if _key(trial) not in known]
    trials = [encode(trial) for trial in new if trial.role == "trial"]
    others = [encode(e) for e in plan.evaluations if e not in before.evaluations]
    parts = [f"{counted(len(trials), 'trial')} ({in_short(trials)})"] if trials else []
    parts += [f"{len(new) - len(trials)} baselines"] if len(new) > len(trials) else []
    parts += [f"{evaluation_name(tree)} for every run" for tree in others]
    return f"adds {', '.join(parts) or 'nothing'}; {counted(len(before.trials), 'trial')} as before"


def _together(before: Sequence[Trial], after: Sequence[Trial]) -> tuple[Trial, ...]:
    """Baselines first; a run that is there keeps the cell under which it is known."""
    known = _keys(before)
    found = [*before, *(trial for trial in after if _key(trial) not in known)]
    return tuple(sorted(found, key=lambda trial: trial.role != "baseline"))


def _measured(
    before: Sequence[EvaluationSpec], after: Iterable[EvaluationSpec]
) -> tuple[EvaluationSpec, ...]:
    """Evaluations keep their signatures, so that no run is measured twice for one more metric."""
    found = list(before)
    for spec in after:
        if isinstance(spec, SamplesSpec):
            same = [s for s in before if isinstance(s, SamplesSpec) and _images(s) == _images(spec)]
            known = {metric for other in same for metric in other.metrics}
            rest = tuple(metric for metric in spec.metrics if metric not in known)
            if same and not rest:
                continue
            spec = dataclasses.replace(spec, metrics=rest)
        if spec not in found:
            found.append(spec)
    return tuple(found)


def _images(spec: SamplesSpec) -> object:
    return spec.count, spec.sampler


def _key(trial: Trial) -> tuple[str, str, str | None]:
    return trial.role, trial.run, trial.baseline


def _keys(trials: Iterable[Trial]) -> set[tuple[str, str, str | None]]:
    return set(map(_key, trials))
