"""The evaluate command: measure trained runs of a sweep, or one run; it trains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tread_lab.commands.options import DONE, UNFINISHED, Evaluate
from tread_lab.commands.resolve import check_one_device, together, visible_device
from tread_lab.config.load import evaluations_of, reference_of, sampler_settings
from tread_lab.data.source import Samples, open_data
from tread_lab.engine.device import pick
from tread_lab.engine.ranks import OneProcess, Processes
from tread_lab.evaluate.measurable import check_measurable, check_samplers
from tread_lab.evaluate.measuring import measuring, open_evaluations, record_of
from tread_lab.records.attempts import ProcessLost
from tread_lab.records.checkpoint_names import list_checkpoints, step_of
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.data import DataSpec
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.specs.evaluation import AT, EvaluationDefaults, EvaluationSpec, SamplesSpec, at_steps
from tread_lab.specs.evaluation_text import MetricNames, decode_evaluations
from tread_lab.specs.metrics import METRICS
from tread_lab.specs.signature import signature
from tread_lab.sweep.plan.plan import started_tasks
from tread_lab.sweep.plan.storage import load_plan
from tread_lab.sweep.preflight import check_references
from tread_lab.sweep.runner import UserErrors
from tread_lab.terminal.console import answer, metrics_line, notices, show_lines
from tread_lab.terminal.plan import Measurement, show_measurements
from tread_lab.terminal.progress import with_progress

UNDER_WAY = (RunState.RUNNING, RunState.INTERRUPTED)
Measurements = list[tuple[RunFolder, tuple[EvaluationSpec, ...]]]


def evaluate(options: Evaluate) -> int:
    """Measure the runs of a sweep, or one run; return the exit code."""
    check_one_device()
    name, as_json = options.name, options.as_json
    device_name = visible_device(options.device)
    lab = Lab.at(options.root) if RunFolder(Path(name)).exported else Lab.existing(options.root)
    torch.set_num_threads(options.threads)
    picked = pick(device_name)
    processes = together(options.gpus, options.processes, device_name)
    rows, user_errors = [], UserErrors()
    measurements, defaults = _to_measure(lab, name, options.evaluations, options.reference)
    names = MetricNames(defaults)
    check_samplers(open_evaluations(measurements))
    check_references(measurements)
    if options.plan:
        show_measurements(_planned(measurements, names), as_json=as_json)
        return DONE
    measurements, opened, left_out = _with_data(measurements)
    show_lines(notices, (f"left out: run {name}: {why}" for name, why in left_out.items()))
    to_measure = [*open_evaluations(measurements)]
    check_measurable(to_measure, opened=opened)
    for folder, spec, metrics in _measured(lab, measurements, processes, picked, user_errors):
        tree = encode(spec)
        metrics = {names.name(name, signature(spec), tree): x for name, x in metrics.items()}
        rows.append(_row(folder, spec, metrics))
        if not as_json:
            answer(_line(folder, spec, metrics))
    if as_json:
        print(json.dumps(rows))
    user_errors.raise_first()
    return UNFINISHED if left_out else DONE


def _with_data(
    measurements: Measurements,
) -> tuple[Measurements, dict[DataSpec, tuple[None, Samples]], dict[str, UserError]]:
    """Return the runs whose data are here, these held-out samples, and why each other is left out.

    Raises:
        UserError: no run has its data.
    """
    present: Measurements = []
    opened: dict[DataSpec, tuple[None, Samples]] = {}
    left_out: dict[str, UserError] = {}
    for folder, specs in measurements:
        asked = {run.data for run, _ in open_evaluations([(folder, specs)])}
        try:
            opened |= {data: (None, open_data(data, "heldout")) for data in asked - opened.keys()}
            present.append((folder, specs))
        except UserError as error:
            left_out[folder.name] = error
    if not present:
        raise next(iter(left_out.values()))
    return present, opened, left_out


def _measured(
    lab: Lab,
    measurements: Measurements,
    processes: Processes,
    device: torch.device,
    user_errors: UserErrors,
) -> Iterator[tuple[RunFolder, EvaluationSpec, dict[str, float]]]:
    """Measure and yield one after the other; collect users' errors.

    Raises:
        Unavailable: one of the processes has ended.
    """
    asked = [(folder, spec) for folder, specs in measurements for spec in specs]
    draws = any(isinstance(s, SamplesSpec) and record_of(run, s) is None for run, s in asked)
    try:
        with (processes if draws else OneProcess()).open(device) as ranks:
            for folder, spec in asked:
                with user_errors.collect():
                    steps = measuring(folder, spec, device, cache=lab.root / "cache", ranks=ranks)
                    noun = "images" if isinstance(spec, SamplesSpec) else "passes"
                    yield folder, spec, with_progress(steps, noun)
    except ProcessLost as lost:
        raise Unavailable(f"{lost}; the same command goes on") from lost


def _row(folder: RunFolder, spec: EvaluationSpec, metrics: Mapping[str, float]) -> dict[str, Any]:
    at = {} if spec.step is None else {"step": spec.step}
    return {"run": folder.name, "evaluation": spec.kind, **at, **metrics}


def _line(folder: RunFolder, spec: EvaluationSpec, metrics: Mapping[str, float]) -> str:
    at = "" if spec.step is None else f" {AT} {spec.step}"
    return f"{folder.name} {spec.kind}{at}: {metrics_line(metrics)}"


def _planned(measurements: Measurements, names: MetricNames) -> list[Measurement]:
    """Return what would be measured of each run whose record can be read."""
    read = [
        (folder, run, specs) for folder, specs in measurements if (run := folder.readable_spec())
    ]
    return [
        Measurement(
            folder.name,
            names.label(encode(spec), run.data.source),
            spec.count if isinstance(spec, SamplesSpec) else spec.images,
            record_of(folder, spec) is not None,
        )
        for folder, run, specs in read
        for spec in specs
    ]


def _to_measure(
    lab: Lab, name: str, named: Sequence[str], reference: str | None
) -> tuple[Measurements, EvaluationDefaults]:
    """Return the runs that have finished training, each with the named evaluations at its steps,
    and the settings that these leave unsaid: the sweep's, or those kept with a run by itself.

    A folder of exported weights is measured in that folder, at its one step.

    A run that goes on can be measured at steps before its end, from checkpoints that it keeps.

    Raises:
        UserError: none has finished, or an evaluation does not exist.
    """
    exported = RunFolder(Path(name))
    if exported.exported:
        defaults = exported.evaluation_defaults()
        return [(exported, _of_exported(exported, named, defaults, reference))], defaults
    if name in lab.sweeps():
        measurements, defaults = _of_sweep(lab, name, named, reference)
    elif named:
        folder = lab.known_run(name)
        defaults = folder.evaluation_defaults()
        measurements = [(folder, _decoded(named, defaults, reference))]
    else:
        lab.known_run(name)
        raise UserError("name what to measure, e.g. `tread-lab evaluate RUN heldout_loss fd@1k`")
    trained = [(folder, own) for folder, specs in measurements if (own := _ready(folder, specs))]
    if not trained:
        raise UserError(f"{name}: no run has finished training")
    return trained, defaults


def _of_exported(
    folder: RunFolder, named: Sequence[str], defaults: EvaluationDefaults, reference: str | None
) -> tuple[EvaluationSpec, ...]:
    specs = _decoded(named, defaults, reference)
    if not specs or any(spec.step is not None for spec in specs):
        raise UserError(f"{folder.path} has the weights of one step; name what to measure: fd@1k")
    return specs


def _ready(folder: RunFolder, specs: tuple[EvaluationSpec, ...]) -> tuple[EvaluationSpec, ...]:
    """Return what can be measured of a run now: of one that goes on, at steps that it has kept.

    Raises:
        UserError: a step lies beyond the run.
    """
    state = folder.state()
    if not state.measurable and state not in UNDER_WAY:
        return ()
    run = folder.readable_spec()
    if run is None:  # said when the run is measured
        return tuple(spec for spec in specs if spec.step is None)
    specs = at_steps(specs, run.train.steps)
    if state.measurable:
        reached = folder.step()
        return tuple(s for s in specs if not isinstance(s.step, int) or s.step <= reached)
    kept = {step_of(path) for path in list_checkpoints(folder.checkpoints)}
    return tuple(spec for spec in specs if spec.step in kept)


def _of_sweep(
    lab: Lab, name: str, named: Sequence[str], reference: str | None
) -> tuple[Measurements, EvaluationDefaults]:
    """Return the sweep's runs with the named evaluations, or with those of the plan."""
    plan = load_plan(lab.sweep(name))
    defaults = plan.evaluation_defaults
    planned = {task.run: task.evaluations for task in started_tasks(plan, lab)}
    if named or reference is not None:
        trials = (trial.run for trial in plan.trials)  # as the sweep measures no run before them
        planned = dict.fromkeys(trials, _decoded(named, defaults, reference))
    return [(lab.run(run), specs) for run, specs in planned.items()], defaults


def _decoded(
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
