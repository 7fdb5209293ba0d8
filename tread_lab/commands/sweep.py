"""The sweep command: plan, then run what is open; a plan alone imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.commands.launch import Launch, show
from tread_lab.commands.mlflow_view import check_known
from tread_lab.commands.options import DONE, Sweep
from tread_lab.commands.resolve import check_one_device, gpus_per_run, visible_device
from tread_lab.config.load import load_sweep
from tread_lab.records.lab import Lab
from tread_lab.records.plan import plan_text
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import OWN_FEATURES, by_extractor
from tread_lab.sweep.data_digests import DataDigests
from tread_lab.sweep.plan.devices import check_precisions
from tread_lab.sweep.plan.plan import Plan, pending_tasks, plan_sweep, started_tasks
from tread_lab.sweep.plan.storage import check_edit, plan_with_costs
from tread_lab.sweep.resources import RunResources, devices_of
from tread_lab.sweep.task import Task
from tread_lab.terminal.console import answers, notices, say, show_lines


def sweep(options: Sweep) -> int:
    """Plan a sweep, run what is open, draw and rank; return the exit code."""
    check_one_device()
    device = visible_device(options.device, ray=options.executor == "ray")
    check_known(options.tracker)
    lab = Lab.at(options.root)
    if not options.plan:
        lab.check_writable()
    name, spec, experiment = load_sweep(options.file, options.overrides)
    gpus = gpus_per_run(options.gpus, device)
    counts = (options.concurrent, options.processes)
    resources = RunResources(device, options.cpus, gpus, *counts)
    devices = devices_of(options.executor, resources)
    digests = DataDigests(lab, say).named
    plan = plan_sweep(lab, options.name or name, spec, experiment, devices, digests, say=say)
    possible = plan.possible_tasks
    if all(task.spec.data.is_embedded or task.spec.data.digest for task in possible):
        check_edit(lab.sweep(plan.name), plan)  # else its runs have other names
    check_precisions((precision for task in possible for precision in _precisions(task)), devices)
    _check_early(plan, lab)
    begun, retried = started_tasks(plan, lab), list[Task]()
    if options.retry_failed:
        retried = _retry_failed(lab, plan, begun, dry_run=options.plan)
    open_tasks = pending_tasks(plan, lab)
    launch = Launch(options, lab, plan, begun, open_tasks, resources, devices)
    if not options.plan:
        from tread_lab.commands.drive import drive  # torch

        return drive(launch)
    open_runs = {task.run for task in open_tasks}
    open_tasks += [task for task in retried if task.run not in open_runs]  # reopened by a start
    place = {task.run: number for number, task in enumerate(begun)}
    open_tasks.sort(key=lambda task: place.get(task.run, len(place)))
    show_lines(notices, _missing(open_tasks))
    if options.as_json:
        print(plan_text(plan_with_costs(plan)), end="")
        return DONE
    show(launch, answers)
    return DONE


def _precisions(task: Task) -> list[str]:
    """Return the precisions of training and of sampling."""
    samples = (spec for spec in task.evaluations if isinstance(spec, SamplesSpec))
    return [task.spec.precision, *(spec.sampler.precision for spec in samples)]


def _missing(tasks: Sequence[Task]) -> list[str]:
    """Return a line for each file that is not here; torch is imported where files are read."""
    if not any(map(_reads_files, tasks)):
        return []
    from tread_lab.sweep.preflight import missing_files

    return missing_files(tasks)


def _reads_files(task: Task) -> bool:
    """Return whether a task reads files that are not shipped with this package."""
    data, systems = task.spec.data, (task.spec.repa, task.spec.captions)
    shipped = {*OWN_FEATURES.values()}
    samples = [spec for spec in task.evaluations if isinstance(spec, SamplesSpec)]
    return (
        not data.is_embedded
        or any(part is not None for part in systems)
        or any(spec.reference is not None for spec in samples)
        or any(not by_extractor(spec.metrics, data.source).keys() <= shipped for spec in samples)
    )


def _check_early(plan: Plan, lab: Lab, again: Sequence[str] = ()) -> None:
    """Refuse what early stopping cannot judge."""
    if plan.stop_early is not None:
        from tread_lab.sweep.early_stopping import EarlyStopping  # torch

        EarlyStopping.of(plan, lab, again=again)


def _retry_failed(lab: Lab, plan: Plan, begun: Sequence[Task], *, dry_run: bool) -> list[Task]:
    """Say and return which failed runs are run again; unless it is a dry run reopen them.

    Of a search they are of cells that it has suggested: others it may never run.
    """
    from tread_lab.sweep.run_task import failed_kind, failed_tasks, reopen  # torch

    tasks = failed_tasks(lab, begun)
    _check_early(plan, lab, [task.run for task in tasks])  # before any is reopened
    folders = [lab.run(task.run) for task in tasks]
    names = ", ".join(f"{folder.name} ({failed_kind(folder)})" for folder in folders)
    say(f"running {len(tasks)} failed runs again: {names}" if tasks else "no run has failed")
    if not dry_run:
        with lab.sweep(plan.name).lock():
            for task in tasks:
                reopen(lab, task)
    return tasks
