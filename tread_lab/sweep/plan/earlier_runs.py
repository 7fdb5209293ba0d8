"""Speeds of earlier runs: times of steps and evaluations on record in a lab, by kind of run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tread_lab.engine.compiled import EAGER, arithmetic
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.speed import Kind, kind_of, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.metric_names import STEP_SECONDS
from tread_lab.records.status import RunState
from tread_lab.specs.decode import encode
from tread_lab.specs.evaluation import EvaluationSpec
from tread_lab.specs.run import RunSpec
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.trial.task import Task

_NEWEST = 100  # runs of a lab that are looked at
_ENOUGH = 8  # runs of a kind


@dataclass
class EarlierRuns:
    """What the earlier runs of one kind took on devices of one kind.

    Attributes:
        steps: FLOPs and median seconds of a step of each run.
        evaluations: by setting, seconds for a FLOP of its passes, everything included.
    """

    steps: list[tuple[float, float]] = field(default_factory=list)
    evaluations: dict[str, list[float]] = field(default_factory=dict)


def earlier_runs(lab: Lab, todo: Sequence[Task], devices: Devices) -> dict[Kind, EarlierRuns]:
    """Return what completed runs of the tasks' kinds took on devices like these.

    A run counts if it had the same model of device, as many neighbours and threads, and the same
    compiler. Of a kind the newest eight count, among the newest hundred of the lab.
    """
    kinds = {kind_of(task.spec) for task in todo}
    asked = {setting(spec): spec for task in todo for spec in task.evaluations}
    found: dict[Kind, EarlierRuns] = {}
    for folder in _newest(lab):
        seconds = ((folder.result() or {}).get("metrics") or {}).get(STEP_SECONDS)
        if seconds is None or not _ran_there(folder, devices):
            continue
        spec = folder.readable_spec()
        if spec is None or kind_of(spec) not in kinds or not _is_timed(folder, spec, devices):
            continue
        runs = found.setdefault(kind_of(spec), EarlierRuns())
        if len(runs.steps) < _ENOUGH:
            runs.steps.append((step_flops(spec), seconds))
            for name, per_flop in _evaluations(folder, spec, asked):
                runs.evaluations.setdefault(name, []).append(per_flop)
    return found


def setting(evaluation: EvaluationSpec) -> str:
    """Return what an evaluation is, whatever step of a run it measures."""
    return _text(encode(evaluation))


def _newest(lab: Lab) -> list[RunFolder]:
    results = [(path.stat().st_mtime, path) for path in lab.root.glob("runs/*/result.json")]
    newest = sorted(results, reverse=True)[:_NEWEST]
    folders = (RunFolder(path.parent) for _, path in newest)
    return [f for f in folders if f.state() is RunState.COMPLETED]


def _ran_there(folder: RunFolder, devices: Devices) -> bool:
    """Return whether a run's last attempt had a device of this kind, and as much of it."""
    origins, attempts = folder.origin(), folder.attempts.read()
    if not origins or not attempts:
        return False
    last = origins[-1]
    models = {kind.model for kind in devices.kinds if kind.model}
    if devices.type == "cpu" and last.get("threads") != devices.threads:
        return False
    model = last.get("model", last.get("device"))
    return model in models and attempts[-1].packed == devices.packed


def _is_timed(folder: RunFolder, spec: RunSpec, devices: Devices) -> bool:
    """Return whether its median is of steps after the warm-up, all alike, compiled as now."""
    made = folder.attempts.read()[-1].made_with
    computed = made.get(f"blocks of {spec.model.backbone}", EAGER)
    mixed = bool(spec.routes) and cost(spec).dense_images > 0
    warm = spec.train.steps > spec.execution.log_every
    return warm and not mixed and computed == arithmetic(spec, devices.type)


def _evaluations(
    folder: RunFolder, spec: RunSpec, asked: Mapping[str, EvaluationSpec]
) -> Iterator[tuple[str, float]]:
    """Yield those settings of evaluations that are asked for, and seconds for a FLOP of passes."""
    for evaluation in folder.evaluations():
        tree = evaluation.read() or {}
        name, seconds = _text(tree.get("spec") or {}), tree.get("seconds")
        if seconds is not None and name in asked and (flops := passes(spec, asked[name])[1]):
            yield name, seconds / flops


def _text(tree: Mapping[str, Any]) -> str:
    return json.dumps({k: v for k, v in tree.items() if k != "step"}, sort_keys=True)
