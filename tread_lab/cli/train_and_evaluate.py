"""Trains one run in this process, or measures runs; the latter trains nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch

from tread_lab.cli.console import metrics_line, say
from tread_lab.cli.options import (
    DONE,
    INTERRUPTED,
    UNFINISHED,
    AsJson,
    Device,
    GpusTogether,
    HangTimeout,
    Overrides,
    ProcessesTogether,
    Rate,
    Root,
    Routes,
    Threads,
    check_device,
    routed,
    run_spec,
)
from tread_lab.cli.progress import tasks_progress, with_progress
from tread_lab.cli.show_status import show_run
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
from tread_lab.config.load import evaluations_of, load_experiment, reference_of, sampler_settings
from tread_lab.config.metrics import METRICS
from tread_lab.config.signature import signature
from tread_lab.config.sweep import check_treatments, ema_notices
from tread_lab.evaluate.measurable import check_measurable, check_samplers
from tread_lab.evaluate.measuring import measuring, open_evaluations
from tread_lab.hardware import Devices, check_precisions
from tread_lab.hardware import gpus as visible_gpus
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import ProcessLost, RunState
from tread_lab.sweep.forecast import disk_line
from tread_lab.sweep.plan import load_plan, started_tasks, with_whole_parents
from tread_lab.sweep.planned_sweep import DataDigests
from tread_lab.sweep.preflight import check_references, preflight
from tread_lab.sweep.run_task import WorkerInfo
from tread_lab.sweep.runner import InlineRunner, Interrupted, UserErrors
from tread_lab.sweep.task import ListQueue, Task, failed, is_complete, reopen, with_ancestors
from tread_lab.train.device import pick
from tread_lab.train.ranks import Processes


def train(
    experiment: Annotated[str, "a path, or the name of a file in ./experiments or a shipped one"],
    overrides: Overrides = (),
    *,
    retry_failed: Annotated[bool, "retry a failed run"] = False,
    route: Routes = None,
    rate: Rate = None,
    device: Device = None,
    threads: Threads = 1,
    gpus: GpusTogether = None,
    processes: ProcessesTogether = None,
    hang_timeout: HangTimeout = None,
    root: Root = None,
) -> int:
    """Train and evaluate one run, its parents first.

    Example: tread-lab train tiny --route "2->8" train.steps=500
    """
    check_device(device)
    worker = WorkerInfo(hang_timeout=hang_timeout, processes=together(gpus, processes, device))
    runner = InlineRunner(device=device, threads=threads, worker=worker)
    lab, loaded = Lab.at(root), load_experiment(experiment, routed(route, overrides))
    spec = run_spec(with_whole_parents(loaded, lab), rate)
    spec = DataDigests(lab, say).named(spec)
    evaluations = decode_evaluations(loaded.evaluate, loaded.usual)
    task = Task(spec, evaluations, loaded.usual.with_probes(evaluations))
    retried = failed(lab, with_ancestors([task])) if retry_failed else []
    check_references([(lab.run(task.run), task.evaluations)])
    try:
        if retried or not is_complete(lab, task):
            _complete(lab, task, retried, runner)
    except Interrupted:
        say(f"interrupted after saving a checkpoint; rerun the command to continue run {task.run}")
        return INTERRUPTED
    folder = lab.run(task.run)
    show_run(folder)
    ended = folder.state() is not RunState.FAILED and is_complete(lab, task)
    return DONE if ended else UNFINISHED


def _complete(lab: Lab, task: Task, retried: Sequence[Task], runner: InlineRunner) -> None:
    """Carry out what the run and its parents lack; failed ones are reopened once all is checked."""
    tasks = with_ancestors([task])
    open_tasks = [task for task in tasks if task in retried or not is_complete(lab, task)]
    specs = [task.spec for task in open_tasks]
    check_treatments(specs)
    devices = replace(Devices.here(runner.device), per_run=runner.worker.processes.count)
    check_precisions((spec.precision for spec in specs), devices)
    found = preflight(open_tasks, devices)
    say(*found, *ema_notices(specs), disk_line(open_tasks, lab))
    reopen(lab, retried)
    with tasks_progress(open_tasks, lab) as watch:
        runner.run(lab, ListQueue(open_tasks), watch)


def together(gpus: int | None, processes: int | None, device: str | None) -> Processes:
    """Return the processes of a run: one for each GPU, or some on CPUs.

    Raises:
        UserError: too few GPUs, or a device of the other kind.
    """
    here = len(visible_gpus())
    if processes and (gpus or (device != "cpu" and here)):
        raise UserError("--processes: must be used with --device cpu. Try --gpus for GPUs.")
    if gpus and device not in (None, "cuda"):
        raise UserError(
            f"--device {device}: must not be combined with --gpus {gpus}, which uses the first"
            " GPUs. Try removing --device."
        )
    if gpus and gpus > here:
        raise UserError(f"--gpus: must be at most {here} on this machine, got {gpus}")
    return Processes(gpus or processes or 1)


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
        raise Unavailable(f"{lost}. Try the same command again.") from lost
    if as_json:
        print(json.dumps(rows))
    user_errors.raise_first()
    return DONE


def to_measure(
    lab: Lab, name: str, named: Sequence[str], reference: str | None
) -> tuple[Measurements, EvaluationDefaults]:
    """Return the trained runs, each with the named evaluations at its steps, and the default
    settings: of the sweep, or stored with a single run.

    Exported weights are evaluated in their folder, at their only step.

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
                "metrics: requires a metric for a single run. Try heldout_loss or fd@1k."
            )
        if exported.exported and any(spec.step is not None for spec in specs):
            raise UserError(
                f"{name}: must be evaluated at its only step. Try fd@1k without `{AT}`."
            )
        trained = [(folder, specs)] if exported.exported else _trained([(folder, specs)])
    if not trained:
        raise UserError(f"{name}: must have a completed run, got none. Try `tread-lab status`.")
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
        defaults: settings that they do not name.
        reference: value of `--reference`, replaces the default.
    """
    if reference is not None:
        defaults = replace(defaults, reference=reference_of(reference))
    settings = sampler_settings([word for word in named if "=" in word])
    items = evaluations_of([word for word in named if "=" not in word])
    specs = decode_evaluations(items, defaults, cells=[settings])
    samples = [spec for spec in specs if isinstance(spec, SamplesSpec)]
    if settings and not samples:
        raise UserError("sampler: requires a metric of samples. Try fd@1k sampler.steps=40.")
    if reference is not None and not any(METRICS[m].compares for s in samples for m in s.metrics):
        raise UserError(
            "--reference: requires a metric that compares with a reference. Try fid@1k --reference"
            f" {reference}."
        )
    return specs
