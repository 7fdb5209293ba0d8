"""The evaluate command: measure trained runs of a sweep, or one run; it trains nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tread_lab.commands.executors import check_one_device, visible_device
from tread_lab.commands.exit_codes import DONE
from tread_lab.engine.device import pick
from tread_lab.engine.evaluate import check_measurable, evaluate, open_evaluations
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.screen.console import answer, metrics_line
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec, decode_evaluations
from tread_lab.sweep.execution.executor import UserErrors
from tread_lab.sweep.plan.open_tasks import begun_tasks
from tread_lab.sweep.plan.plan import load_plan

_Measured = list[tuple[RunFolder, tuple[EvaluationSpec, ...]]]


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab evaluate`."""

    root: str | None
    name: str
    evaluations: Sequence[str]
    device: str | None
    threads: int
    json: bool


def run(options: Options) -> int:
    """Measure the runs of a sweep, or one run; return the exit code."""
    check_one_device()
    device_name = visible_device(options.device)
    lab = Lab.existing(options.root)
    torch.set_num_threads(options.threads)
    device = pick(device_name)
    rows, user_errors = [], UserErrors()
    measured = _to_measure(lab, options)
    check_measurable(open_evaluations(measured))
    for folder, specs in measured:
        for spec in specs:
            with user_errors.collect():
                metrics = evaluate(folder, spec, device, cache=lab.root / "cache")
                rows.append({"run": folder.name, "evaluation": spec.kind, **metrics})
                if not options.json:
                    answer(f"{folder.name} {spec.kind}: {metrics_line(metrics)}")
    if options.json:
        print(json.dumps(rows))
    user_errors.raise_first()
    return DONE


def _to_measure(lab: Lab, options: Options) -> _Measured:
    """Return the runs that have finished training, each with the evaluations asked for."""
    if options.name in lab.sweeps():
        measured = _of_sweep(lab, options)
    else:
        measured = [_of_run(lab.known_run(options.name), options)]
    trained = [pair for pair in measured if pair[0].state().measurable]
    if not trained:
        raise UserError(f"{options.name}: no run has finished training")
    return trained


def _of_sweep(lab: Lab, options: Options) -> _Measured:
    """Return the sweep's runs with the evaluations asked for, else with those of the plan."""
    plan = load_plan(lab.sweep(options.name))
    planned = {task.run: task.evaluations for task in begun_tasks(plan, lab)}
    if options.evaluations:
        sampler = _planned_sampler(plan.evaluations)
        if sampler is None:
            sampler = _recorded_sampler(lab.run(next(iter(planned))))
        asked = decode_evaluations(options.evaluations, sampler)
        planned = dict.fromkeys(planned, asked)
    return [(lab.run(name), specs) for name, specs in planned.items()]


def _of_run(folder: RunFolder, options: Options) -> tuple[RunFolder, tuple[EvaluationSpec, ...]]:
    if not options.evaluations:
        raise UserError("name what to measure, e.g. `tread-lab evaluate RUN heldout_loss fd@1k`")
    return folder, decode_evaluations(options.evaluations, _recorded_sampler(folder))


def _planned_sampler(evaluations: Sequence[EvaluationSpec]) -> dict[str, object] | None:
    """Return the tree of the first sampler that the plan names, `None` where it samples nothing."""
    samplers = (spec.sampler for spec in evaluations if isinstance(spec, SamplesSpec))
    return next((dict(encode(sampler)) for sampler in samplers), None)


def _recorded_sampler(folder: RunFolder) -> dict[str, object]:
    """Return the tree of the sampler that a run was measured with, empty for the default."""
    trees = ((e.read() or {}).get("spec", {}).get("sampler") for e in folder.evaluations())
    return next((dict(tree) for tree in trees if tree), {})
