"""One function per command: load, do, show; each returns the exit code."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

from tread_lab import screen
from tread_lab.records.layout import Lab, RunFolder
from tread_lab.records.parents import with_parents
from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import Unavailable, UserError
from tread_lab.spec.evaluation import EvaluationSpec, SamplesSpec, decode_evaluations
from tread_lab.spec.run import RunSpec
from tread_lab.spec.sweep import Experiment
from tread_lab.spec.then import run_of

INTERRUPTED = 130


def sweep(options: Namespace) -> int:
    """Plan a sweep, run what is not done, draw and rank."""
    from tread_lab import config
    from tread_lab.engine import device as devices
    from tread_lab.sweep import plan as plans
    from tread_lab.sweep.budget import open_budget
    from tread_lab.sweep.estimate import forecast
    from tread_lab.sweep.extension import settled
    from tread_lab.sweep.outlook import coming_tasks
    from tread_lab.sweep.preflight import check_arithmetic
    from tread_lab.sweep.priced import priced_tree

    limits = [f"budget.{limit}" for limit in options.budget]
    name, spec, experiment = config.load_sweep(options.file, [*options.overrides, *limits])
    device = devices.pick(options.device)
    lab = Lab.at(options.root)
    spec, experiment = (_with_parents(part, lab) for part in (spec, experiment))
    plan = plans.make_plan(options.name or name, spec, experiment, devices.facts(device))
    if options.json and options.plan:
        print(plans.plan_text(priced_tree(plan)), end="")
        return 0
    plan = settled(lab.sweep(plan.name), plan, extend=options.extend)
    plan = replace(plan, budget=spec.budget, stop_early=spec.stop_early)  # no part of a stored plan
    check_arithmetic(plan.possible_tasks, device)
    lanes = _lanes(options)
    if options.retry_failed is not None:
        _retry_failed(options, lab, plan)
    coming = coming_tasks(plan, lab)
    extends = _say_extension(lab, plan) if options.extend else False
    outlook = forecast(lab, coming, lanes=lanes, device=options.device, executor=options.executor)
    screen.show_plan(plan, lab, outlook.total(coming), lanes)
    if plan.budget is not None:
        screen.show_budget(plan, open_budget(lab, plan, outlook.seconds), coming, lanes)
    if options.plan:
        return 0
    return _drive(options, lab, plan, outlook, redraw=extends)


def _say_extension(lab: Lab, plan: Any) -> bool:
    """Say what is added to the stored plan; whether anything is."""
    from tread_lab.sweep.extension import what_is_added
    from tread_lab.sweep.plan import load_plan

    folder = lab.sweep(plan.name)
    if not folder.plan_path.exists():
        return False
    before = load_plan(folder)
    screen.say(f"{plan.name}: {what_is_added(before, plan)}")
    return bool(plan.versions != before.versions)


def _retry_failed(options: Namespace, lab: Lab, plan: Any) -> None:
    """Say which failed runs are taken up again, and unless only the plan is asked for, do it."""
    from tread_lab.sweep.again import chosen, failed_kind, take_up

    kinds = [kind for kind in options.retry_failed.split(",") if kind]
    tasks = chosen(lab, plan.possible_tasks, kinds)
    folders = [lab.run_of(task.spec) for task in tasks]
    told = ", ".join(f"{folder.name} ({failed_kind(folder)})" for folder in folders)
    screen.say(f"running {len(tasks)} failed runs again: {told}" if tasks else "no run has failed")
    if not options.plan:
        with lab.sweep(plan.name).claim():
            for task in tasks:
                take_up(lab, task)


def _drive(options: Namespace, lab: Lab, plan: Any, outlook: Any, *, redraw: bool = False) -> int:
    from tread_lab.sweep.early import Early
    from tread_lab.sweep.execute import Interrupted
    from tread_lab.sweep.outlook import coming_tasks
    from tread_lab.sweep.plan import store_plan
    from tread_lab.sweep.preflight import preflight
    from tread_lab.sweep.unmixed import check_unmixed, mixed

    if plan.stop_early is not None and options.executor == "inline":
        raise UserError("stop_early: needs trials beside each other: use --executor ray, or null")
    folder, todo = lab.sweep(plan.name), coming_tasks(plan, lab)
    preflight(todo, options.device, packed=_packed(options))
    if not options.allow_mixed:
        check_unmixed(mixed(lab, plan.tasks, todo))
    with folder.claim():
        store_plan(folder, plan)
        mistake = None
        feed = _feed(lab, plan, outlook)
        try:
            if todo:
                with ExitStack() as stack:
                    stack.enter_context(_live_sync(options, lab, plan.name))
                    watch = stack.enter_context(screen.progress(plan, lab, todo, outlook.lanes))
                    stack.callback(feed.close)
                    _executor(options, Early.of(plan, lab)).run(lab, feed, watch)
        except Interrupted:
            if feed.stop:  # the hours are over: what was asked for is done
                return _conclude(options, lab, plan.name, changed=True, feed=feed)
            screen.say(f"stopped with checkpoints; the same command continues {plan.name}")
            return INTERRUPTED
        except Unavailable:
            raise
        except UserError as error:  # of some runs; the others are done
            mistake = error
        changed = bool(todo) or redraw
        code = _conclude(options, lab, plan.name, changed=changed, feed=feed)
        if mistake is not None:
            raise mistake
        return code


def _feed(lab: Lab, plan: Any, outlook: Any) -> Any:
    """Where the executor gets its tasks: the open ones or a search, within the budget."""
    from tread_lab.records.spent import Stopwatch
    from tread_lab.spec.budget import BudgetSpec
    from tread_lab.sweep.budget import BudgetedFeed, open_budget
    from tread_lab.sweep.feed import ListFeed

    plan = replace(plan, budget=plan.budget or BudgetSpec())
    budget = open_budget(lab, plan, outlook.seconds)
    watch = Stopwatch(lab.sweep(plan.name).spent_path)
    if plan.search is None:
        return BudgetedFeed(
            ListFeed(plan.open_tasks(lab), after=plan.baselines_first), budget, watch
        )
    from tread_lab.sweep.search_feed import SearchFeed

    feed = SearchFeed(lab, plan, fits=lambda tasks: budget.fits(tasks, watch.seconds / 3600))
    return BudgetedFeed(feed, budget, watch)


def _conclude(options: Namespace, lab: Lab, name: str, *, changed: bool, feed: Any) -> int:
    """Figures, MLflow, table; the exit code says whether every run has a result."""
    from analysis.figures import write_figures

    folder = lab.sweep(name)
    figures = write_figures(lab, name) if changed or not folder.figures.exists() else []
    if not options.no_mlflow:
        _sync_if_possible(lab, name)
    screen.show_ranking(lab, name, as_json=options.json)
    screen.show_places(lab, folder, figures, mlflow=not options.no_mlflow)
    if feed.exhausted:
        screen.say(f"the budget of {name} is used up: {feed.left}")
    return int(screen.show_unfinished(lab, name))


def train(options: Namespace) -> int:
    """Train one run and measure it as its experiment says."""
    from tread_lab import config
    from tread_lab.sweep.again import chosen, take_up
    from tread_lab.sweep.execute import InlineExecutor, Interrupted
    from tread_lab.sweep.family import with_ancestors
    from tread_lab.sweep.preflight import preflight
    from tread_lab.sweep.trial import Task, is_complete

    lab = Lab.at(options.root)
    experiment = config.load_experiment(options.experiment, options.overrides)
    spec = _run_spec(_with_parents(experiment, lab), options)
    task = Task(spec, decode_evaluations(experiment.evaluate, experiment.sampler))
    folder = lab.run_of(spec)
    if options.retry_failed:
        for again in chosen(lab, with_ancestors([task])):
            take_up(lab, again)
    if not is_complete(lab, task):
        todo = [task for task in with_ancestors([task]) if not is_complete(lab, task)]
        preflight(todo, options.device)
        try:
            with screen.run_progress(todo) as watch:
                executor = InlineExecutor(
                    device=options.device,
                    threads=options.threads,
                    hang_timeout=options.hang_timeout,
                )
                executor.run(lab, todo, watch)
        except Interrupted:
            screen.say(f"stopped with a checkpoint; the same command continues run {folder.name}")
            return INTERRUPTED
    screen.show_run(folder)
    return int(folder.state() == "failed" or not is_complete(lab, task))


def evaluate(options: Namespace) -> int:
    """Measure the runs of a sweep, or one run; nothing is trained."""
    import torch

    from tread_lab.engine import device as devices
    from tread_lab.engine.evaluate import evaluate as measure

    lab = Lab.at(options.root)
    torch.set_num_threads(options.threads)
    device = devices.pick(options.device)
    rows = []
    for folder, specs in _to_measure(lab, options):
        for spec in specs:
            metrics = measure(folder, spec, device, cache=lab.root / "cache")
            rows.append({"run": folder.name, "evaluation": spec.kind, **metrics})
            if not options.json:
                screen.say(f"{folder.name} {spec.kind}: {screen.metrics_line(metrics)}")
    if options.json:
        print(json.dumps(rows))
    return 0


def _to_measure(lab: Lab, options: Namespace) -> list[tuple[RunFolder, tuple[EvaluationSpec, ...]]]:
    """Runs that have finished training, with the evaluations asked for."""
    from tread_lab.sweep.plan import load_plan

    planned: tuple[EvaluationSpec, ...] = ()
    if options.name in lab.sweeps():
        plan = load_plan(lab.sweep(options.name))
        folders, planned = [lab.run_of(task.spec) for task in plan.tasks], plan.evaluations
    else:
        folders = [lab.known_run(options.name)]
        if not options.evaluations:
            raise UserError(
                "name what to measure, e.g. `tread-lab evaluate RUN heldout_loss fd@1k`"
            )
    specs = planned
    if options.evaluations:
        specs = decode_evaluations(options.evaluations, _sampler(folders[0], planned))
    trained = [(f, specs) for f in folders if f.state() in ("completed", "stopped")]
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
    lab = Lab.at(options.root)
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
    from analysis.figures import write_figures

    lab = Lab.at(options.root)
    folder = lab.known_sweep(options.name)
    for path in write_figures(lab, folder.name):
        print(path)
    return 0


def report(options: Namespace) -> int:
    """Write one self-contained HTML file about a sweep."""
    from analysis.report import write_report

    print(write_report(Lab.at(options.root), options.name, options.output))
    return 0


def dashboard(options: Namespace) -> int:
    """Serve the dashboard of this lab until interrupted."""
    from dashboards.app import serve

    serve(Lab.at(options.root), host=options.host, port=options.port, say=screen.say)
    return 0


def recommend(options: Namespace) -> int:
    """The rule that a placement sweep supports, how sure it is, and an experiment that uses it."""
    from pathlib import Path

    from tread_lab import advice
    from tread_lab.recommend import recommend as recommended

    lab = Lab.at(options.root)
    found = recommended(lab, options.name, metric=options.metric, cheapest=options.cheapest)
    path = Path(options.out or lab.sweep(found.sweep).path / "recommended.yaml").absolute()
    advice.write_experiment(lab, found, path)
    if options.json:
        print(json.dumps({**advice.as_tree(found), "experiment": str(path)}, indent=1))
        return 0
    for line in (*advice.as_lines(found), f"experiment: {path} (`tread-lab train {path}`)"):
        print(line)
    return 0


def cost(options: Namespace) -> int:
    """Exact cost of a model under its routes; nothing is built."""
    from tread_lab import config
    from tread_lab.engine import cost as costs

    name = options.experiment or ("b2_imagenet256" if options.model else "tiny")
    overrides = [*options.overrides, *([f"model={options.model}"] if options.model else [])]
    experiment = _with_parents(config.load_experiment(name, overrides), Lab.at())
    spec = _run_spec(experiment, options)
    if options.json:
        print(json.dumps(costs.report(spec), indent=1))
    else:
        screen.show_pairs(costs.table(spec))
    return 0


def gc(options: Namespace) -> int:
    """List what nothing needs any more, or remove it."""
    from tread_lab.sweep.garbage import clear, find

    lab = Lab.at(options.root)
    litter = find(lab)
    freed = clear(lab, litter) if options.yes else None
    screen.show_litter(litter, freed, as_json=options.json)
    return 0


def schema(options: Namespace) -> int:
    """Print the JSON schema of sweep or experiment files."""
    from tread_lab.spec.schema import schema_text

    print(schema_text(options.kind), end="")
    return 0


def sync(options: Namespace) -> int:
    """Make the MLflow store equal to the records."""
    lab = Lab.at(options.root)
    names = [lab.known_sweep(name).name for name in options.names] or lab.sweeps()
    if not names:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in names:
        screen.say(str(_sync(lab, name)))
    return 0


def ui(options: Namespace) -> int:
    """Bring the MLflow store up to date and serve its pages until interrupted."""
    from tread_lab.tracking.ui import ui as serve

    lab = Lab.at(options.root)
    for name in lab.sweeps():
        _sync_if_possible(lab, name)
    serve(lab, host=options.host, port=options.port)
    return 0


def _with_parents(part: Any, lab: Lab) -> Any:
    """A sweep or experiment with the runs written out that it names as parents."""
    return decode(type(part), with_parents(vars(part), lab))


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


def _executor(options: Namespace, early: Any = None) -> Any:
    from tread_lab.sweep.execute import InlineExecutor

    if options.executor == "inline":
        return InlineExecutor(
            device=options.device, threads=options.cpus, hang_timeout=options.hang_timeout
        )
    from tread_lab.sweep.ray_executor import RayExecutor

    return RayExecutor(
        device=options.device,
        cpus=options.cpus,
        gpus=_gpus(options),
        concurrent=options.concurrent,
        hang_timeout=options.hang_timeout,
        early=early,
    )


def _gpus(options: Namespace) -> float:
    """GPUs per run: as asked, else one where there is one and the CPU was not asked for."""
    if options.gpus is not None:
        return float(options.gpus)
    if options.device == "cpu":
        return 0.0
    import torch

    return 1.0 if torch.cuda.is_available() else 0.0


def _lanes(options: Namespace) -> int:
    """How many runs go at once on this machine."""
    import os

    if options.executor == "inline":
        return 1
    import torch

    gpus = _gpus(options)
    places = torch.cuda.device_count() / gpus if gpus else (os.cpu_count() or 1) / options.cpus
    return max(1, min(int(places), options.concurrent or int(places)))


def _packed(options: Namespace) -> int:
    """How many runs share one device: a GPU given in parts, or this machine's CPU."""
    gpus = _gpus(options)
    return _lanes(options) if not gpus else max(1, int(1 / gpus))


def _live_sync(options: Namespace, lab: Lab, name: str) -> AbstractContextManager[Any]:
    if options.no_mlflow:
        return nullcontext()
    from tread_lab.tracking.tracker import LiveSync

    return LiveSync(lambda: _tracker(lab), name)


def _tracker(lab: Lab) -> Any:
    from tread_lab.tracking.mlflow_tracker import MlflowTracker

    return MlflowTracker(lab, lab.mlflow_uri)


def _sync_if_possible(lab: Lab, name: str) -> None:
    """A store that does not answer costs a finished sweep nothing but a line."""
    try:
        _sync(lab, name)
    except UserError as error:
        screen.say(f"{error}; the records are complete, `tread-lab sync {name}` shows them later")


def _sync(lab: Lab, name: str) -> Any:
    return _tracker(lab).sync(name)
