"""What the folders of a sweep's runs say; only what has changed since the last reading is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from tread_lab.records.evaluation_folder import EvaluationFolder
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import parameters
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import state_in_sweep
from tread_lab.specs.cell import Tree
from tread_lab.specs.evaluation import end_signature
from tread_lab.specs.trials import SharedParts

_Stamp = tuple[int, int]  # of result.json and of the folder of evaluations, in nanoseconds
Column = tuple[str, str, bool]  # a metric, the column that it has, whether the plan asked for it


@dataclass(frozen=True)
class Record:
    """What the folder of one run says; numbers are there for a completed run only.

    Attributes:
        evaluations, losses: by signature, those of the run's last weights.
        at_steps: by step before the end, evaluations by the signature that they have at the end.
        losses_at: by step before the end, files of losses, likewise.
        folders: evaluations begun, those without numbers too.
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
    folders: int = 0
    devices: int = 1

    @property
    def measured(self) -> int:
        """How many evaluations have numbers."""
        return len(self.evaluations) + sum(map(len, self.at_steps.values()))


PENDING = Record(RunState.PENDING)


@dataclass(frozen=True)
class Result:
    """What is measured of a run beside its baseline.

    Attributes:
        record, baseline: what it follows from.
        problem: why the losses of the two cannot be paired.
        reason: the problem, what a baseline without a result means, or how the run ended.
        numbers: metrics, gaps with the ends of their intervals, and costs by column.
        columns: of the metrics of evaluations.
    """

    record: Record
    baseline: Record | None
    problem: str = ""
    reason: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    columns: dict[Column, None] = field(default_factory=dict)


@dataclass
class Memory:
    """What earlier readings of a sweep found, so that only what has changed is read again.

    A record that says the same stays the same object, and so does what follows from it alone.

    Attributes:
        records: by run, with the stamp of its folder; that of a run is `None` which has not ended
            or whose evaluations are not whole, so that it is read each time.
        results: by baseline and run.
        settings: the last plan, and what its trials have in a frame before any has a result.
        frame: of the last reading, beside the results that it was made from.
        parameters: by run, `names.parameters` of its spec.
        parts: decodes equal fields of specs once for all runs that have them.
    """

    records: dict[str, tuple[_Stamp | None, Record]] = field(default_factory=dict)
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    settings: tuple[StoredPlan, pd.DataFrame] | None = None
    frame: tuple[Sequence[Result], pd.DataFrame] | None = None
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)
    parts: SharedParts = field(default_factory=SharedParts)

    def parameters_of(self, run: str, tree: Tree) -> dict[str, Any]:
        """The parameters of a run with the spec `tree`, as a plan holds it."""
        if run not in self.parameters:
            self.parameters[run] = parameters(self.parts.run(tree))
        return self.parameters[run]


class Records(dict[str, Record]):
    """The records of a sweep's runs by name, each read once, when it is first asked for."""

    def __init__(self, lab: Lab, plan: StoredPlan, memory: Memory) -> None:
        super().__init__()
        self._lab, self._planned, self._memory = lab, plan.planned, memory
        self._stopped = lab.sweep(plan.name).stopped()
        self._runs, runs = f"{lab.root}/runs", lab.root / "runs"
        self._begun = set(os.listdir(runs)) if runs.is_dir() else set()  # noqa: PTH208 - its names

    def __missing__(self, run: str) -> Record:
        if run in self._begun:
            record = self._remembered(run)
        else:
            self._lab.run(run)  # refuses what is no name of a run
            record = PENDING
        self[run] = record
        return record

    def _remembered(self, run: str) -> Record:
        """The record of a run, read only if its folder has changed since it was read whole."""
        stamp = _stamp(f"{self._runs}/{run}")
        earlier, last = self._memory.records.get(run, (None, None))
        if last is not None and stamp is not None and stamp == earlier:
            return last
        record = _record(self._lab.run(run), self._planned)
        if state_in_sweep(record.state, run, self._stopped) is not record.state:
            record = Record(RunState.STOPPED, self._stopped[run].reason, self._stopped[run].step)
        whole = record.measured == record.folders
        if earlier is None and last == record:
            record = last
        self._memory.records[run] = (stamp if whole else None, record)
        return record


def _stamp(folder: str) -> _Stamp | None:
    """The stamp of a run, which is called often; `None` before the run has ended."""
    try:
        result = os.stat(f"{folder}/result.json").st_mtime_ns  # noqa: PTH116
    except OSError:
        return None
    try:
        return result, os.stat(f"{folder}/evaluations").st_mtime_ns  # noqa: PTH116
    except OSError:
        return result, 0


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
        folders=len(names),
        devices=result.get("devices", 1),
    )


def numbers(tree: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation and what it cost."""
    costs = {key: value for key, value in tree.items() if key.startswith("cost/")}
    return {**tree["metrics"], **costs}
