"""What the folders of a sweep's runs say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tread_lab.records.evaluation_folder import EvaluationFolder
from tread_lab.records.lab import Lab
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import state_in_sweep
from tread_lab.specs.evaluation import end_signature


@dataclass(frozen=True)
class Record:
    """What the folder of one run says; numbers are there for a completed run only.

    Attributes:
        evaluations, losses: by signature, those of the run's last weights.
        at_steps: by step before the end, evaluations by the signature that they have at the end.
        losses_at: by step before the end, files of losses, likewise.
        devices: how many trained the run together.
    """

    state: RunState
    reason: str = ""
    steps: int | None = None
    costs: dict[str, float] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    losses: dict[str, Path] = field(default_factory=dict)
    at_steps: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    losses_at: dict[int, dict[str, Path]] = field(default_factory=dict)
    devices: int = 1


PENDING = Record(RunState.PENDING)


class Records(dict[str, Record]):
    """The records of a sweep's runs by name, each read once, when it is first asked for."""

    def __init__(self, lab: Lab, plan: StoredPlan) -> None:
        super().__init__()
        self._lab, self._planned = lab, plan.planned
        self._stopped = lab.sweep(plan.name).stopped()

    def __missing__(self, run: str) -> Record:
        folder = self._lab.run(run)
        record = _record(folder, self._planned) if folder.path.is_dir() else PENDING
        if state_in_sweep(record.state, run, self._stopped) is not record.state:
            record = Record(RunState.STOPPED, self._stopped[run].reason, self._stopped[run].step)
        self[run] = record
        return record


def _record(run: RunFolder, planned: list[str]) -> Record:
    """One run, the evaluations of the plan first and in its order."""
    result = run.result()
    if result is None:
        return Record(run.state())
    state, reason, steps = result["state"], result.get("reason", ""), result.get("step")
    if state is not RunState.COMPLETED:
        return Record(state, reason, steps)
    costs, folder = result.get("metrics", {}), run.path / "evaluations"
    names = sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208 - called often
    trees = {name: EvaluationFolder(folder / name, steps).read() for name in names}
    found = []
    for name, tree in trees.items():
        if tree is None:
            continue
        step = int(tree["spec"].get("step") or 0)
        found.append((step, end_signature(tree["spec"]) if step else name, name, tree))
    place = {name: number for number, name in enumerate(planned)}
    found.sort(key=lambda one: place.get(one[1], len(place)))
    at_steps: dict[int, dict[str, dict[str, Any]]] = {0: {}}  # 0 is the end
    losses: dict[int, dict[str, Path]] = {0: {}}
    for step, own, name, tree in found:
        at_steps.setdefault(step, {})[own] = tree
        if tree["spec"].get("kind") == "heldout_loss":
            losses.setdefault(step, {})[own] = folder / name / "losses.npz"
    told = (  # what another sweep asked for beside the losses, which all compare, is not lacking
        tree["problem"]
        for _, own, _, tree in found
        if "problem" in tree and (own in place or tree["spec"].get("kind") == "heldout_loss")
    )
    return Record(
        state,
        next(told, reason),
        steps,
        costs={name: float(cost) for name, cost in costs.items()},
        evaluations=at_steps.pop(0),
        losses=losses.pop(0),
        at_steps=dict(sorted(at_steps.items())),
        losses_at=losses,
        devices=result.get("devices", 1),
    )


def numbers(tree: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation and what it cost."""
    costs = {key: value for key, value in tree.items() if key.startswith("cost/")}
    return {**tree["metrics"], **costs}
