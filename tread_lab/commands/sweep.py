"""The sweep command: plan a sweep, say what it will cost, run what is open, draw and rank."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rich.console import Console

from tread_lab.commands.declare import words_of
from tread_lab.commands.mlflow_view import live_sync, sync_if_possible
from tread_lab.commands.options import DONE, INTERRUPTED, UNFINISHED, Sweep
from tread_lab.commands.resolve import (
    check_one_device,
    gpus_per_run,
    visible_device,
)
from tread_lab.config.load import load_sweep
from tread_lab.records.lab import Lab
from tread_lab.records.plan import plan_text
from tread_lab.records.sweep_folder import Stopwatch, hours_text
from tread_lab.specs.errors import Unavailable, UserError
from tread_lab.sweep.early_stopping import EarlyStopping
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.disk import disk_need
from tread_lab.sweep.plan.forecast import forecast, task_flops
from tread_lab.sweep.plan.plan import Plan, pending_tasks, plan_sweep, started_tasks
from tread_lab.sweep.plan.preflight import (
    check_arithmetic,
    check_planned,
    check_references,
    check_sampled,
    check_selections,
    preflight,
)
from tread_lab.sweep.plan.storage import (
    check_edit,
    plan_with_costs,
    store_plan,
)
from tread_lab.sweep.queues import ListQueue, TaskQueue, TimedQueue
from tread_lab.sweep.resources import RunResources, devices_of, make_runner
from tread_lab.sweep.run_task import failed_kind, failed_tasks, reopen
from tread_lab.sweep.runner import Interrupted
from tread_lab.sweep.task import Task
from tread_lab.terminal.console import answers, notices, say, show_lines
from tread_lab.terminal.disk import DiskWatch, disk_lines
from tread_lab.terminal.live_progress import sweep_progress
from tread_lab.terminal.plan import (
    hours_lines,
    show_plan,
)
from tread_lab.terminal.status import show_unfinished


@dataclass(frozen=True)
class _Launch:
    """A sweep that is ready to run: its plan, and what carries it out.

    Attributes:
        begun, open_tasks: the tasks so far, and those with something left to do.
    """

    options: Sweep
    lab: Lab
    plan: Plan
    begun: Sequence[Task]
    open_tasks: Sequence[Task]
    resources: RunResources
    devices: Devices

    @property
    def whole(self) -> set[str]:
        """The runs that were complete, with every file as it was written."""
        return {task.run for task in self.begun} - {task.run for task in self.open_tasks}


def sweep(options: Sweep) -> int:
    """Plan a sweep, run what is open, draw and rank; return the exit code."""
    check_one_device()
    device = visible_device(options.device, ray=options.executor == "ray")
    lab = Lab.at(options.root)
    if not options.plan:
        lab.check_writable()
    name, spec, experiment = load_sweep(options.file, options.overrides)
    gpus = gpus_per_run(options.gpus, device)
    counts = (options.concurrent, options.processes)
    resources = RunResources(device, options.cpus, gpus, *counts)
    devices = devices_of(options.executor, resources)
    name = options.name or name
    plan = plan_sweep(lab, name, spec, experiment, devices, say=say)
    check_edit(lab.sweep(plan.name), plan)
    check_arithmetic(plan.possible_tasks, devices)
    check_selections(plan.possible_tasks)
    check_sampled(plan.possible_tasks)
    check_references((lab.run(task.run), task.evaluations) for task in plan.possible_tasks)
    EarlyStopping.of(plan, lab)  # refuses what it cannot judge
    retried: list[Task] = []
    begun = started_tasks(plan, lab)
    if options.retry_failed:
        retried = _retry_failed(lab, plan, begun, dry_run=options.plan)
    open_tasks = pending_tasks(plan, lab)
    if options.plan:  # which reopens none
        show_lines(notices, check_planned(open_tasks))
        open_runs = {task.run for task in open_tasks}
        open_tasks += [task for task in retried if task.run not in open_runs]
        place = {task.run: number for number, task in enumerate(begun)}
        open_tasks.sort(key=lambda task: place.get(task.run, len(place)))
    launch = _Launch(options, lab, plan, begun, open_tasks, resources, devices)
    if not options.plan:
        return _drive(launch)
    if options.as_json:
        print(plan_text(plan_with_costs(plan)), end="")
        return DONE
    _show(launch, answers)
    return DONE


def _show(launch: _Launch, out: Console) -> None:
    """Print what will run and what it will take; on stdout where only the plan is asked for."""
    plan, lab, slots = launch.plan, launch.lab, launch.devices.slots
    remaining = forecast(lab, launch.open_tasks, launch.devices)
    show_plan(out, plan, lab, remaining, slots)
    show_lines(out, disk_lines(disk_need(launch.open_tasks, slots), lab))
    if (per_run := launch.devices.per_run) > 1:
        how = "which also draw its images; no time of their exchange is counted"
        show_lines(out, [f"each run is trained on {per_run} devices, {how}"])
    if launch.options.plan:
        show_lines(out, hours_lines(plan, remaining))
    if limit := hours_text(lab.sweep(plan.name), plan.hours):
        show_lines(out, [f"hours: {limit}"])


def _retry_failed(lab: Lab, plan: Plan, begun: Sequence[Task], *, dry_run: bool) -> list[Task]:
    """Say and return which failed runs are run again; unless it is a dry run reopen them.

    Of a search they are of cells that it has suggested: others it may never run.
    """
    tasks = failed_tasks(lab, begun)
    EarlyStopping.of(plan, lab, again=[task.run for task in tasks])  # before any is reopened
    folders = [lab.run(task.run) for task in tasks]
    names = ", ".join(f"{folder.name} ({failed_kind(folder)})" for folder in folders)
    say(f"running {len(tasks)} failed runs again: {names}" if tasks else "no run has failed")
    if not dry_run:
        with lab.sweep(plan.name).lock():
            for task in tasks:
                reopen(lab, task)
    return tasks


def _drive(launch: _Launch) -> int:
    """Run what is open under the sweep's lock, then conclude; return the exit code.

    Raises:
        Unavailable: the disk is full or the cluster is lost.
        UserError: a mistake of some runs, raised once the others have ended.
    """
    options, lab, plan = launch.options, launch.lab, launch.plan
    folder, open_tasks = lab.sweep(plan.name), launch.open_tasks
    show_lines(notices, preflight(open_tasks, launch.devices))
    with folder.lock():
        store_plan(folder, plan)
        folder.keep_command(_command(options, lab))
        if plan.stop_early is None:  # all runs go on
            shutil.rmtree(folder.judged_path, ignore_errors=True)
        _show(launch, notices)
        queue = _queue(lab, plan, open_tasks)
        mistake = None
        try:
            if not queue.finished:  # a search may have work where no run is open
                folder.drawn_path.unlink(missing_ok=True)  # first: this process may be killed
                _execute(launch, queue)
        except Interrupted:
            if not queue.stop:  # else the hours are over, as was asked
                say(
                    "interrupted, checkpoints are saved; run the same command again to continue"
                    f" {plan.name}"
                )
                return INTERRUPTED
        except Unavailable:
            raise
        except UserError as error:  # of some runs; the others are done
            mistake = error
        code = _conclude(launch, queue)
        if mistake is not None:
            raise mistake
        return code


def _command(options: Sweep, lab: Lab) -> list[str]:
    """Return the words after `tread-lab` that go on with the sweep, in this folder."""
    here = replace(options, root=str(lab.root))
    flags = words_of(here, Sweep, without=("--plan", "--json", "--retry-failed"))
    return ["sweep", options.file, *options.overrides, *flags]


def _execute(launch: _Launch, queue: TimedQueue) -> None:
    """Run the tasks of the queue, with live progress and MLflow beside them."""
    lab, plan, open_tasks = launch.lab, launch.plan, launch.open_tasks
    runner = make_runner(
        launch.options.executor,
        launch.resources,
        runs_per_device=launch.devices.runs_per_device,
        hang_timeout=launch.options.hang_timeout,
        early=EarlyStopping.of(plan, lab),
    )
    with ExitStack() as stack:
        # `figures` may have drawn meanwhile what there was.
        stack.callback(lab.sweep(plan.name).drawn_path.unlink, missing_ok=True)
        if not launch.options.no_mlflow:
            stack.enter_context(live_sync(lab, plan.name))
        watch = stack.enter_context(sweep_progress(plan, open_tasks, lab, launch.devices.slots))
        stack.callback(queue.watch.note, now=True)
        runner.run(lab, queue, DiskWatch(lab, open_tasks, watch))


def _queue(lab: Lab, plan: Plan, tasks: Sequence[Task]) -> TimedQueue:
    """Return what hands out tasks within the hours: the open ones, or those of a search.

    Baselines come first, so that whatever ends has something to be compared with; then the longest,
    unless early stopping depends on the order.
    """
    queue: TaskQueue
    if plan.search_spec is None:
        baselines = {trial.baseline for trial in plan.trials}
        longest_first = tasks if plan.stop_early else sorted(tasks, key=task_flops, reverse=True)
        ordered = sorted(longest_first, key=lambda task: task.run not in baselines)
        queue = ListQueue(ordered, after=plan.baselines_first)
    else:
        from tread_lab.sweep.search.search_queue import SearchQueue  # imports optuna

        queue = SearchQueue(lab, plan)
    return TimedQueue(queue, plan.hours, Stopwatch(lab.sweep(plan.name).spent_path))


def _conclude(launch: _Launch, queue: TimedQueue) -> int:
    """Draw the figures, sync MLflow, show the ranking; return the exit code."""
    from tread_lab.analysis.figures.catalogue import write_figures  # imports matplotlib
    from tread_lab.terminal.ranking import show_places, show_ranking  # imports pandas

    options, lab, name = launch.options, launch.lab, launch.plan.name
    folder = lab.sweep(name)
    figures = [] if folder.drawn else write_figures(lab, name)
    if not options.no_mlflow:
        sync_if_possible(lab, name)
    show_ranking(lab, name, as_json=options.as_json)
    show_places(lab, folder, figures, mlflow=not options.no_mlflow)
    if queue.closed:
        say(f"the hours of {name} are over: {queue.left}")
    return UNFINISHED if show_unfinished(lab, name, whole=launch.whole) else DONE
