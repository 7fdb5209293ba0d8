"""Measures trained runs of a sweep, or one run, or exported weights; it trains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch

from tread_lab.cli.console import metrics_line
from tread_lab.cli.options import (
    DONE,
    AsJson,
    Device,
    GpusTogether,
    ProcessesTogether,
    Root,
    Threads,
    check_device,
)
from tread_lab.cli.progress import with_progress
from tread_lab.cli.train_run import together
from tread_lab.config.decode import encode
from tread_lab.config.errors import Unavailable, UserError
from tread_lab.config.evaluation import (
    AT,
    EvaluationDefaults,
    EvaluationSpec,
    SamplesSpec,
    at_steps,
    decode_evaluations,
)
from tread_lab.config.labels import MetricNames
from tread_lab.config.load import evaluations_of, reference_of, sampler_settings
from tread_lab.config.metrics import METRICS
from tread_lab.config.signature import signature
from tread_lab.evaluate.measurable import check_measurable, check_samplers
from tread_lab.evaluate.measuring import measuring, open_evaluations
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import ProcessLost, RunState
from tread_lab.sweep.plan import load_plan, started_tasks
from tread_lab.sweep.preflight import check_references
from tread_lab.sweep.runner import UserErrors
from tread_lab.train.device import pick

Measurements = list[tuple[RunFolder, tuple[EvaluationSpec, ...]]]


def evaluate(
    name: Annotated[str, "a sweep, or the start of a run's signature"],
    evaluations: Annotated[
        Sequence[str],
        'e.g. fd@5k "fd@1k at 250, 50%%, end" "{heldout_loss: {images: 64}}" (default: the'
        " evaluations of the plan); sampler.steps=20 sampler.guidance=2 set how images are"
        " generated",
        {"nargs": "*"},
    ] = (),
    *,
    reference: Annotated[
        str | None,
        "statistics to compare with, e.g. fid@50k --reference imagenet256: a name, an .npz as"
        " ADM's evaluator reads it, or heldout (default: as measured so far)",
        {"metavar": "NAME|FILE"},
    ] = None,
    device: Device = None,
    threads: Threads = 1,
    gpus: GpusTogether = None,
    processes: ProcessesTogether = None,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Evaluate trained runs.

    Example: tread-lab evaluate route_placement fd@5k
    """
    check_device(device)
    lab = Lab.at(root) if RunFolder(Path(name)).exported else Lab.existing(root)
    torch.set_num_threads(threads)
    here, together_ = pick(device), together(gpus, processes, device)
    measurements, defaults = to_measure(lab, name, evaluations, reference)
    check_references(measurements)
    to_do = [*open_evaluations(measurements)]
    check_samplers(to_do)
    check_measurable(to_do)
    asked = [(folder, spec) for folder, specs in measurements for spec in specs]
    names, rows, user_errors = MetricNames(defaults), [], UserErrors()
    try:
        with together_.open(here) as ranks:
            for folder, spec in asked:
                with user_errors.collect():
                    steps = measuring(folder, spec, here, cache=lab.root / "cache", ranks=ranks)
                    noun = "images" if isinstance(spec, SamplesSpec) else "passes"
                    found, _ = with_progress(steps, noun)
                    tree, own = encode(spec), signature(spec)
                    metrics = {names.name(key, own, tree): value for key, value in found.items()}
                    step = {} if spec.step is None else {"step": spec.step}
                    rows.append({"run": folder.name, "evaluation": spec.kind, **step, **metrics})
                    if not as_json:
                        at = "".join(f" {AT} {at}" for at in step.values())
                        print(f"{folder.name} {spec.kind}{at}: {metrics_line(metrics)}")
    except ProcessLost as lost:
        raise Unavailable(f"{lost}; the same command goes on") from lost
    if as_json:
        print(json.dumps(rows))
    user_errors.raise_first()
    return DONE


def to_measure(
    lab: Lab, name: str, named: Sequence[str], reference: str | None
) -> tuple[Measurements, EvaluationDefaults]:
    """Return the runs that have finished training, each with the named evaluations at its steps,
    and the settings that these leave unsaid: the sweep's, or those kept with a run by itself.

    A folder of exported weights is measured in that folder, at its one step.

    Raises:
        UserError: none has finished, or an evaluation does not exist.
    """
    exported = RunFolder(Path(name))
    if not exported.exported and name in lab.sweeps():
        plan = load_plan(lab.sweep(name))
        defaults = plan.evaluation_defaults
        asked = {task.run: task.evaluations for task in started_tasks(plan, lab)}
        if named or reference is not None:
            trials = (trial.run for trial in plan.trials)  # parents are not measured
            asked = dict.fromkeys(trials, named_evaluations(named, defaults, reference))
        trained = _trained((lab.run(run), specs) for run, specs in asked.items())
    else:
        folder = exported if exported.exported else lab.known_run(name)
        defaults = folder.evaluation_defaults()
        specs = named_evaluations(named, defaults, reference)
        if not specs:
            raise UserError(
                "name what to measure, e.g. `tread-lab evaluate RUN heldout_loss fd@1k`"
            )
        if exported.exported and any(spec.step is not None for spec in specs):
            raise UserError(f"{name} has the weights of one step; name what to measure: fd@1k")
        trained = [(folder, specs)] if exported.exported else _trained([(folder, specs)])
    if not trained:
        raise UserError(f"{name}: no run has finished training")
    return trained, defaults


def _trained(asked: Iterable[tuple[RunFolder, tuple[EvaluationSpec, ...]]]) -> Measurements:
    """Return the completed runs, each with its own steps.

    Raises:
        UserError: a step lies beyond the run.
    """
    completed = ((run, specs) for run, specs in asked if run.state() is RunState.COMPLETED)
    return [(run, at_steps(specs, run.spec().train.steps)) for run, specs in completed]


def named_evaluations(
    named: Sequence[str], defaults: EvaluationDefaults, reference: str | None
) -> tuple[EvaluationSpec, ...]:
    """Return the named evaluations.

    Args:
        named: evaluations, and fields of the sampler: `fd@1k`, `{heldout_loss: {images: 64}}`,
            `sampler.steps=10`.
        defaults: what they leave unsaid.
        reference: of `--reference`, in place of that of the defaults.
    """
    if reference is not None:
        defaults = replace(defaults, reference=reference_of(reference))
    settings = sampler_settings([word for word in named if "=" in word])
    items = evaluations_of([word for word in named if "=" not in word])
    specs = decode_evaluations(items, defaults, cells=[settings])
    samples = [spec for spec in specs if isinstance(spec, SamplesSpec)]
    if settings and not samples:
        raise UserError("name what to measure with this sampler: fd@1k sampler.steps=40")
    if reference is not None and not any(METRICS[m].compares for s in samples for m in s.metrics):
        raise UserError(f"name what to compare with this reference: fid@1k --reference {reference}")
    return specs
