"""Stores a plan in its sweep's folder, loads it, and refuses another of its name or extends it."""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tread_lab.engine.cost.training import cost
from tread_lab.records.checksums import digest
from tread_lab.records.durable import write_parts
from tread_lab.records.plan import PlanOf, StoredPlan
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.cell import AnySpec, Spec, Trial
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.specs.fields import dotted, lies_in, with_fields
from tread_lab.specs.labels import trial_label
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import unhashed
from tread_lab.specs.trials import QUESTIONS, SharedParts
from tread_lab.specs.units import counted
from tread_lab.sweep.plan.plan import Plan

_FIELDS = 2  # that the difference of two plans names; the rest are counted


def store_plan(folder: SweepFolder, plan: Plan) -> None:
    """Write a new plan, or one that extends the stored plan.

    That of a search is written again where it tries another number of cells.

    Raises:
        UserError: the sweep was planned before with other trials or evaluations.
    """
    stored, now = folder.stored_plan(), time.time()
    if stored is None:
        _write(folder, plan, now)
    elif list(plan.versions[:-1]) == versions(stored):
        _write(folder, plan, stored.created, (*stored.extended, now))
    elif plan.versions != tuple(versions(stored)):
        plan_to_run(folder, plan)
        if plan.wanted != stored.wanted:
            _write(folder, plan, stored.created, stored.extended)


def _write(
    folder: SweepFolder, plan: Plan, created: float | None, extended: tuple[float, ...] = ()
) -> None:
    folder.drawn_path.unlink(missing_ok=True)  # figures are of the former plan
    stored = dataclasses.replace(plan, created=created, extended=extended)
    write_parts(folder.plan_path, stored.parts())


def is_stored(stored: StoredPlan, plan: Plan) -> bool:
    """Return whether both plan the same runs, compared and measured in the same way."""
    return bool(_identity(stored) == _identity(plan))


def version_of(plan: PlanOf[Spec]) -> str:
    """Return a short name of what a plan runs and measures."""
    return digest(json.dumps(_identity(plan), sort_keys=True))


def versions(stored: StoredPlan) -> list[str]:
    """Return the versions of the sweep file that a stored plan was made from, in order."""
    return list(stored.versions) or [version_of(stored)]


def load_plan(folder: SweepFolder) -> Plan:
    """Return the stored plan, its specs decoded.

    Raises:
        UserError: there is none, or it cannot be read; names its file.
    """
    stored, decoded = folder.plan(), SharedParts().run
    fields = {field.name: getattr(stored, field.name) for field in dataclasses.fields(stored)}
    try:
        trials = [Trial(**{**vars(t), "spec": decoded(t.spec)}) for t in stored.trials]
        plan = Plan(**{**fields, "trials": tuple(trials), "versions": tuple(versions(stored))})
        assert plan.evaluations is not None  # decoded here
    except UserError as error:
        raise error.at(str(folder.plan_path)) from None
    return plan


def _identity(plan: PlanOf[Spec]) -> Any:
    """Return what must not change under one name: evaluations, search, runs and baselines."""
    evaluations = [_without_path(tree) for tree in plan.evaluate]
    return evaluations, plan.search, [(t.run, t.baseline) for t in plan.trials]


def _without_path(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tree of an evaluation without the place of its reference, which is not signed."""
    if not evaluation.get("reference"):
        return evaluation
    return {**evaluation, "reference": {"name": evaluation["reference"]["name"]}}


def difference(earlier: StoredPlan, later: PlanOf[Spec]) -> str:
    """Return `experiment.run.train.steps was 10, is 11; 17 trials new, 17 gone`."""
    parts = [*_fields(earlier.sources, later.sources), *other_data(earlier, later)]
    changes = new_trials(earlier.trials, later.trials), new_trials(later.trials, earlier.trials)
    new, gone = ([trial for trial in trials if trial.role == "trial"] for trials in changes)
    if new or gone:
        parts.append(f"{_counted(new, 'new')}, {_counted(gone, 'gone')}")
    if names := _measured(earlier, later):
        parts.append(f"measures {', '.join(names)} too")
    if names := _measured(later, earlier):
        parts.append(f"no longer {', '.join(names)}")
    return "; ".join(parts) or "the same trials in another order"


def other_data(earlier: StoredPlan, later: PlanOf[Spec]) -> Iterator[str]:
    """Yield that the data hold something else than before, where both plans say what they held."""
    was, now = (
        {
            data["digest"]: data["path"]
            for trial in plan.trials
            if "digest" in (data := trial.tree()["spec"].get("data", {}))
        }
        | plan.sources.get("data", {})
        for plan in (earlier, later)
    )
    if was and now and not was.keys() & now.keys():
        digest, path = next(iter(now.items()))
        yield f"the data held {next(iter(was))}, and {path} holds {digest}"


def in_short(trials: Sequence[Trial[Spec]]) -> str:
    """Return two of the trials, by cell and seed."""
    return "; ".join(map(trial_label, trials[:2]))


def new_trials(
    earlier: Sequence[Trial[Spec]], later: Sequence[Trial[AnySpec]]
) -> list[Trial[AnySpec]]:
    """Return the trials of `later` that `earlier` lacks, by role, run and baseline."""
    keys = {(trial.role, trial.run, trial.baseline) for trial in earlier}
    return [trial for trial in later if (trial.role, trial.run, trial.baseline) not in keys]


def _counted(trials: Sequence[Trial[Spec]], what: str) -> str:
    examples = f" (e.g. {in_short(trials[:1])})" if trials else ""
    return f"{counted(len(trials), 'trial')} {what}{examples}"


def _measured(earlier: PlanOf[Spec], later: PlanOf[Spec]) -> list[str]:
    label = MetricNames(later.evaluation_defaults).label
    new = (label(spec) for spec in later.evaluate if spec not in earlier.evaluate)
    return list(dict.fromkeys(new))


def _fields(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of two sweep files and of their experiments that differ."""
    passed_over = ("sweep.question", "earlier", "data.")
    given = (
        {name: value for name, value in _given(tree).items() if not name.startswith(passed_over)}
        for tree in (earlier, later)
    )
    return _changes(*given)


def _compared(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides every cell of a sweep and its baseline, by dotted name."""
    sweep, base = sources.get("sweep") or {}, (sources.get("experiment") or {}).get("run", {})
    run = with_fields(base, sweep.get("fixed") or {}, "fixed")
    baseline = {"none": True} if sweep.get("baseline") is None else sweep["baseline"]
    named = dict(dotted(json.loads(json.dumps({**run, "baseline": baseline})), empty=True))
    return {
        name: value
        for name, value in named.items()
        if not any(lies_in(name, field) for field in (*unhashed(), "seed"))
    }


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield which values differ."""
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    for name in names[:_FIELDS]:
        was, now = (shown(values.get(name), longest=40) for values in (old, new))
        yield f"{name} was {was}, is {now}"
    if len(names) > _FIELDS:
        yield f"{counted(len(names) - _FIELDS, 'field')} more"


def _given(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, by dotted name; stored trees hold lists, not tuples."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in dotted(tree)}
    return {k: v for k, v in values.items() if v not in (None, [])}


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
    tree = dataclasses.replace(plan, created=None, extended=()).tree()
    return {**tree, "counts": counts, "cost": costs, "runs": runs}


_PRICES = ("parameters", "train_flops", "speedup", "speedup_on_gpu", "checkpoint_bytes")


def _price(spec: RunSpec) -> dict[str, float]:
    return {name: round(getattr(cost(spec), name), 4) for name in _PRICES}


def plan_to_run(folder: SweepFolder, plan: Plan, *, extend: bool = False) -> Plan:
    """Return the plan to run under a name: `plan`, a stored plan that contains it, or, to `extend`
    the stored one, their union; nothing is written.

    Raises:
        UserError: another plan has the name, and `extend` is not set or not possible.
    """
    stored = folder.stored_plan()
    if stored is None or is_stored(stored, plan):
        return plan
    if version_of(plan) in versions(stored):
        return load_plan(folder)
    if not extend:
        raise UserError(
            f"sweep {plan.name!r} was planned with other settings: {difference(stored, plan)};"
            " --extend adds what is new, another --name keeps both"
        )
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
    changes = list(_changes(_compared(stored.sources), _compared(plan.sources)))
    if changes and "experiment" in stored.sources:
        raise UserError(
            f"sweep {plan.name!r}: {'; '.join(changes)}; an extension adds cells, seeds and"
            " evaluations, and another --name makes another sweep"
        )
    for change in other_data(stored, plan):
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
    measured = tuple(encode(evaluations))
    return dataclasses.replace(plan, trials=trials, evaluate=measured, sources=sources)


def what_is_added(stored: Plan, plan: Plan) -> str:
    """Describe an extension: `adds 4 trials (s=0.75 ...), 1 baseline; 17 trials as before`."""
    new = new_trials(stored.trials, plan.trials)
    trials = [trial for trial in new if trial.role == "trial"]
    others = [encode(e) for e in plan.evaluations if e not in stored.evaluations]
    parts = [f"{counted(len(trials), 'trial')} ({in_short(trials)})"] if trials else []
    parts += [counted(len(new) - len(trials), "baseline")] if len(new) > len(trials) else []
    label = MetricNames(plan.evaluation_defaults).label
    parts += [f"{label(tree)} for every run" for tree in others]
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
