"""How to run a sweep again: one complete sweep file from its plan, and what it was run with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan

KEPT_EMPTY = ("baseline",)  # `baseline: null` means that there is none


@dataclass(frozen=True)
class Setup:
    """What some runs of a sweep were carried out with.

    Attributes:
        runs: how many.
        code: commit, with `-dirty` where the working tree differed.
        python, device: as recorded.
        packages: name -> version.
    """

    runs: int
    code: str
    python: str
    device: str
    packages: dict[str, str]


def sweep_file(plan: StoredPlan) -> str:
    """The sweep as one YAML file with every field of its base run written out, overrides included.

    `tread-lab sweep FILE` gives the same trials under the same signatures, whatever has become of
    the shipped experiment in the meantime.
    """
    tree = plan.sweep_file
    file = {
        **tree,
        "experiment": plan.experiment,
        "fixed": _merged(plan.base.get("run", {}), tree.get("fixed") or {}),
        "evaluate": plan.evaluations_as_written,
    }
    file = {k: v for k, v in file.items() if k in KEPT_EMPTY or v not in (None, {}, [], "")}
    earlier = len(plan.sources.get("earlier", []))
    note = (
        f"# Extends {earlier} earlier files, whose trials are not repeated here.\n"
        if earlier
        else ""
    )
    first = [k for k in ("question", "experiment", "fixed") if k in file]
    return note + yaml.safe_dump(
        {k: file[k] for k in (*first, *file)}, sort_keys=False, default_flow_style=None, width=96
    )


def setups(lab: Lab, runs: Iterable[str]) -> list[Setup]:
    """The distinct setups of all attempts, the commonest first; several mean a mixed comparison."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for run in runs:
        found = {_setup(attempt) for attempt in lab.run(run).origin()}
        counts.update(found)
    return [
        Setup(count, code, python, device, dict(packages))
        for (code, python, device, packages), count in counts.most_common()
    ]


def _setup(attempt: dict[str, Any]) -> tuple[Any, ...]:
    code = str(attempt.get("code") or "unknown")
    if attempt.get("diff") and not code.endswith("-dirty"):
        code += "-dirty"
    packages = tuple(sorted((attempt.get("packages") or {}).items()))
    return code, str(attempt.get("python", "")), str(attempt.get("device", "")), packages


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes`, mappings field by field; a dotted key reaches into its mapping."""
    found = dict(base)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        value = {rest: value} if rest else value
        old = found.get(head)
        found[head] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return found
