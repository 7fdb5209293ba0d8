"""The difference of two plans, in one line for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tread_lab.records.plan import StoredPlan
from tread_lab.specs.errors import shown
from tread_lab.specs.evaluation_labels import evaluation_label
from tread_lab.specs.fields import dotted
from tread_lab.specs.labels import AnyTrial, Trial, trial_label
from tread_lab.specs.units import counted

Tree = Mapping[str, Any]
_FIELDS = 2  # that are named; the rest are counted


def difference(earlier: StoredPlan, later: StoredPlan) -> str:
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


def other_data(earlier: StoredPlan, later: StoredPlan) -> Iterator[str]:
    """Yield that the data hold something else than before, where both plans say what they held."""
    was, now = (
        {
            data["digest"]: data["path"]
            for trial in plan.trials
            if "digest" in (data := trial.spec.get("data", {}))
        }
        | plan.sources.get("data", {})
        for plan in (earlier, later)
    )
    if was and now and not was.keys() & now.keys():
        digest, path = next(iter(now.items()))
        yield f"the data held {next(iter(was))}, and {path} holds {digest}"


def in_short(trials: Sequence[Trial]) -> str:
    """Return two of the trials, by cell and seed."""
    return "; ".join(map(trial_label, trials[:2]))


def new_trials(earlier: Sequence[AnyTrial], later: Sequence[AnyTrial]) -> list[AnyTrial]:
    """Return the trials of `later` that `earlier` lacks, by role, run and baseline."""
    keys = {(trial.role, trial.run, trial.baseline) for trial in earlier}
    return [trial for trial in later if (trial.role, trial.run, trial.baseline) not in keys]


def _counted(trials: Sequence[Trial], what: str) -> str:
    examples = f" (e.g. {in_short(trials[:1])})" if trials else ""
    return f"{counted(len(trials), 'trial')} {what}{examples}"


def _measured(earlier: StoredPlan, later: StoredPlan) -> list[str]:
    names = [evaluation_label(spec) for spec in later.evaluate if spec not in earlier.evaluate]
    return list(dict.fromkeys(names))


def _fields(earlier: Tree, later: Tree) -> Iterator[str]:
    """Yield the fields of two sweep files and of their experiments that differ."""
    old, new = _given(earlier), _given(later)
    names = [
        name
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
        and not name.startswith(("sweep.question", "earlier", "data."))
    ]
    for name in names[:_FIELDS]:
        was, now = (shown(values.get(name), longest=40) for values in (old, new))
        yield f"{name} was {was}, is {now}"
    if len(names) > _FIELDS:
        yield f"{counted(len(names) - _FIELDS, 'field')} more"


def _given(tree: Tree) -> dict[str, Any]:
    """Return the fields that have a value, by dotted name; stored trees hold lists, not tuples."""
    values = {k: list(v) if isinstance(v, tuple) else v for k, v in dotted(tree)}
    return {name: value for name, value in values.items() if value not in (None, [])}
