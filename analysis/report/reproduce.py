"""How to run a sweep again: one complete sweep file from its plan, and what it was run with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan

KEPT_EMPTY = ("baseline",)  # `baseline: null` means that there is none


@dataclass(frozen=True)
class Setup:
    """What an attempt was carried out with.

    Attributes:
        code: commit, with `-dirty` where the working tree differed.
        python, device: as recorded.
        packages: (name, version) of each.
    """

    code: str
    python: str
    device: str
    packages: tuple[tuple[str, str], ...]


def sweep_file(plan: StoredPlan) -> str:
    """Return the sweep as one YAML file that writes out every field of its base run.

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


def setups(lab: Lab, runs: Iterable[str]) -> list[tuple[Setup, int]]:
    """Return the distinct setups and how many runs had each, the commonest first.

    Several setups mean that the comparison is mixed.
    """
    counts: Counter[Setup] = Counter()
    for run in runs:
        counts.update({_setup(attempt) for attempt in lab.run(run).origin()})
    return counts.most_common()


def _setup(attempt: Mapping[str, Any]) -> Setup:
    code = str(attempt.get("code") or "unknown")
    if attempt.get("diff") and not code.endswith("-dirty"):
        code += "-dirty"
    packages = tuple(sorted((attempt.get("packages") or {}).items()))
    return Setup(code, str(attempt.get("python", "")), str(attempt.get("device", "")), packages)


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes`, mapping by mapping; a dotted key reaches into its mapping."""
    merged = dict(base)
    for key, value in changes.items():
        head, _, rest = key.partition(".")
        value = {rest: value} if rest else value
        both = isinstance(merged.get(head), dict) and isinstance(value, dict)
        merged[head] = _merged(merged[head], value) if both else value
    return merged
