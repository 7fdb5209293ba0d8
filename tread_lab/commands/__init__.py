"""One function per command: load, do, show; each returns the exit code."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from tread_lab import screen
from tread_lab.commands.executors import check_one_device, show_gpus
from tread_lab.commands.launch import INTERRUPTED, sweep
from tread_lab.commands.mirror import sync_if_possible, sync_now
from tread_lab.commands.parents import written_out
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.status import RunState
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec, decode_evaluations
from tread_lab.specs.run import RunSpec
from tread_lab.specs.sweep import Experiment
from tread_lab.specs.then import run_of

__all__ = [
    "cost",
    "dashboard",
    "evaluate",
    "figures",
    "gc",
    "recommend",
    "report",
    "schema",
    "status",
    "sweep",
    "sync",
    "train",
    "ui",
]


def train(options: Namespace) -> int:
    """Train one run and measure it as its experiment says."""
    from tread_lab.config import load
    from tread_lab.sweep.execution.executor import InlineExecutor, Interrupted
    from tread_lab.sweep.plan.devices import Devices
    from tread_lab.sweep.plan.disk import disk_need
    from tread_lab.sweep.plan.preflight import preflight
    from tread_lab.sweep.trial.family import with_ancestors
    from tread_lab.sweep.trial.retry_failed import failed_tasks, reopen
    from tread_lab.sweep.trial.trial import Task, is_complete

    check_one_device(options)
    show_gpus(options)
    lab = Lab.at(options.root)
    experiment = load.load_experiment(options.experiment, options.overrides)
    spec = _run_spec(written_out(experiment, lab), options)
    task = Task(spec, decode_evaluations(experiment.evaluate, experiment.sampler))
    folder = lab.run_of(spec)
    if options.retry_failed:
        for again in failed_tasks(lab, with_ancestors([task])):
            reopen(lab, again)
    if not is_complete(lab, task):
        todo = [task for task in with_ancestors([task]) if not is_complete(lab, task)]
        preflight(todo, Devices.here(options.device))
        screen.show_disk(disk_need(todo), lab)
        try:
            with screen.run_progress(todo, lab) as watch:
                executor = InlineExecutor(
                    device=options.device,
                    threads=options.threads,
                    hang_timeout=options.hang_timeout,
                )
                executor.run(lab, todo, screen.DiskWatch(lab, todo, watch))
        except Interrupted:
            screen.say(f"stopped with a checkpoint; the same command continues run {folder.name}")
            return INTERRUPTED
    screen.show_run(folder)
    return int(folder.state() is RunState.FAILED or not is_complete(lab, task))


def evaluate(options: Namespace) -> int:
    """Measure the runs of a sweep, or one run; nothing is trained."""
    import torch

    from tread_lab.engine import device as devices
    from tread_lab.engine.evaluate import check_measurable, open_evaluations
    from tread_lab.engine.evaluate import evaluate as measure
    from tread_lab.sweep.execution.executor import UserErrors

    check_one_device(options)
    show_gpus(options)
    lab = Lab.existing(options.root)
    torch.set_num_threads(options.threads)
    device = devices.pick(options.device)
    rows, user_errors = [], UserErrors()
    measured = _to_measure(lab, options)
    check_measurable(open_evaluations(measured))
    for folder, specs in measured:
        for spec in specs:
            with user_errors.collect():
                metrics = measure(folder, spec, device, cache=lab.root / "cache")
                rows.append({"run": folder.name, "evaluation": spec.kind, **metrics})
                if not options.json:
                    screen.answer(f"{folder.name} {spec.kind}: {screen.metrics_line(metrics)}")
    if options.json:
        print(json.dumps(rows))
    user_errors.raise_first()
    return 0


def _to_measure(lab: Lab, options: Namespace) -> list[tuple[RunFolder, tuple[EvaluationSpec, ...]]]:
    """Runs that have finished training, with the evaluations asked for."""
    from tread_lab.sweep.plan.open_tasks import begun_tasks
    from tread_lab.sweep.plan.plan import load_plan

    planned: tuple[EvaluationSpec, ...] = ()
    own: dict[str, tuple[EvaluationSpec, ...]] = {}  # a parent is only trained
    if options.name in lab.sweeps():
        plan = load_plan(lab.sweep(options.name))
        own = {t.run: t.evaluations for t in begun_tasks(plan, lab)}
        folders, planned = [lab.run(name) for name in own], plan.evaluations
    else:
        folders = [lab.known_run(options.name)]
        if not options.evaluations:
            raise UserError(
                "name what to measure, e.g. `tread-lab evaluate RUN heldout_loss fd@1k`"
            )
    specs = decode_evaluations(options.evaluations, _sampler(folders[0], planned))
    trained = [
        (folder, specs if options.evaluations else own[folder.name])
        for folder in folders
        if folder.state().measurable
    ]
    if not trained:
        raise UserError(f"{options.name}: no run has finished training")
    return trained


def _sampler(folder: RunFolder, planned: Sequence[EvaluationSpec]) -> dict[str, Any]:
    """The sampler that was used before: the plan's, else the run's own, else the default."""
    for spec in planned:
        if isinstance(spec, SamplesSpec):
            return dict(encode(spec.sampler))
    for done in folder.evaluations():
        sampler = (done.read() or {}).get("spec", {}).get("sampler")
        if sampler:
            return dict(sampler)
    return {}


def status(options: Namespace) -> int:
    """Sweeps of the lab, the trials of one sweep, or one run."""
    lab = Lab.existing(options.root)
    if options.name is None:
        screen.show_lab(lab, as_json=options.json)
    elif options.watch:
        screen.watch_sweep(lab, lab.known_sweep(options.name).name)
    elif options.name in lab.sweeps():
        screen.show_sweep(lab, options.name, as_json=options.json)
    else:
        screen.show_run(lab.known_run(options.name), as_json=options.json)
    return 0


def figures(options: Namespace) -> int:
    """Draw every figure that the sweep's records support."""
    from tread_lab.analysis.figures.catalogue import write_figures

    lab = Lab.existing(options.root)
    folder = lab.known_sweep(options.name)
    for path in write_figures(lab, folder.name):
        print(path)
    return 0


def report(options: Namespace) -> int:
    """Write one self-contained HTML file about a sweep."""
    from tread_lab.analysis.report.report import write_report

    print(write_report(Lab.existing(options.root), options.name, options.output))
    return 0


def dashboard(options: Namespace) -> int:
    """Serve the dashboard of this lab until interrupted."""
    from tread_lab.dashboards.app import serve

    serve(Lab.at(options.root), host=options.host, port=options.port, say=screen.say)
    return 0


def recommend(options: Namespace) -> int:
    """The rule that a placement sweep supports, how sure it is, and an experiment that uses it."""
    from pathlib import Path

    from tread_lab.analysis.recommend import wording
    from tread_lab.analysis.recommend.recommendation import recommend as recommended

    lab = Lab.existing(options.root)
    found = recommended(lab, options.name, metric=options.metric, cheapest=options.cheapest)
    path = Path(options.out or lab.sweep(found.sweep).path / "recommended.yaml").absolute()
    wording.write_experiment(lab, found, path)
    if options.json:
        print(json.dumps({**wording.as_tree(found), "experiment": str(path)}, indent=1))
        return 0
    for line in (*wording.as_lines(found), f"experiment: {path} (`tread-lab train {path}`)"):
        print(line)
    return 0


def cost(options: Namespace) -> int:
    """Exact cost of a model under its routes; nothing is built."""
    from tread_lab.config import load
    from tread_lab.engine.cost import training

    name = options.experiment or ("b2_imagenet256" if options.model else "tiny")
    overrides = [*options.overrides, *([f"model={options.model}"] if options.model else [])]
    experiment = written_out(load.load_experiment(name, overrides), Lab.at())
    spec = _run_spec(experiment, options)
    if options.json:
        print(json.dumps(training.report(spec), indent=1))
    else:
        screen.show_pairs([*training.table(spec), *_times(spec, experiment, options.device_rates)])
    return 0


def _times(spec: RunSpec, experiment: Experiment, device: str | None) -> list[tuple[str, str]]:
    """Rows for `cost --device-rates`: training and every evaluation by the device's rates."""
    if device is None:
        return []
    from tread_lab.engine.cost.rates import rates_named
    from tread_lab.screen.units import duration

    rates = rates_named(device)
    rows = [("training time", duration(rates.train_seconds(spec)))]
    for evaluation in decode_evaluations(experiment.evaluate, experiment.sampler):
        seconds = {"network": rates.pass_seconds(spec, evaluation)}
        seconds |= {k: s for k, s in rates.image_seconds(spec, evaluation).items() if s}
        told = ", ".join(f"{name} {duration(s)}" for name, s in seconds.items())
        rows.append((evaluation.kind.replace("_", " "), told))
    return [*rows, (f"rates of {device}", rates.source)]


def gc(options: Namespace) -> int:
    """List what nothing needs any more, or remove it."""
    from tread_lab.sweep.gc import SAMPLES, clear, find

    lab = Lab.existing(options.root)
    litter = find(lab, samples=True)
    samples = [item for item in litter if item.what == SAMPLES]
    chosen = litter if options.samples else [item for item in litter if item.what != SAMPLES]
    freed = clear(lab, chosen) if options.yes else None
    kept = 0 if options.samples else sum(item.bytes for item in samples)
    screen.show_removable(chosen, freed, as_json=options.json, samples_kept=kept)
    return 0


def schema(options: Namespace) -> int:
    """Print the JSON schema of sweep or experiment files."""
    from tread_lab.specs.schema import schema_text

    print(schema_text(options.kind), end="")
    return 0


def sync(options: Namespace) -> int:
    """Make the MLflow store equal to the records."""
    lab = Lab.existing(options.root)
    names = [lab.known_sweep(name).name for name in options.names] or lab.sweeps()
    if not names:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in names:
        screen.answer(str(sync_now(lab, name)))
    return 0


def ui(options: Namespace) -> int:
    """Bring the MLflow store up to date and serve its pages until interrupted."""
    from tread_lab.tracking.ui import ui as serve

    lab = Lab.existing(options.root)
    for name in lab.sweeps():
        sync_if_possible(lab, name)
    serve(lab, host=options.host, port=options.port)
    return 0


def _run_spec(experiment: Experiment, options: Namespace) -> RunSpec:
    """The experiment's run with the routes of `--route` and `--rate`."""
    tree: dict[str, Any] = dict(experiment.run)
    if options.route:
        tree["routes"] = options.route
    if options.rate is None:
        return run_of(tree)
    spec = run_of({**tree, "then": None})
    if not spec.routes:
        raise UserError('--rate: there is no route; add --route "2->B-4"')
    routes = [{**encode(route), "rate": options.rate} for route in spec.routes]
    return run_of({**tree, "routes": routes})
