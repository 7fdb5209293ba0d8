"""Plans a sweep, shows what will run, and starts it; a plan alone imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from tread_lab.commands.mlflow_view import check_known
from tread_lab.commands.options import DONE
from tread_lab.config.load import load_sweep
from tread_lab.records.lab import Lab
from tread_lab.records.plan import plan_text
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.metrics import OWN_FEATURES, by_extractor
from tread_lab.sweep.data_digests import DataDigests
from tread_lab.sweep.plan.devices import Devices, check_precisions
from tread_lab.sweep.plan.plan import Plan, pending_tasks, plan_sweep, started_tasks
from tread_lab.sweep.plan.storage import check_edit, plan_with_costs
from tread_lab.sweep.resources import RunResources, devices_of
from tread_lab.sweep.task import Task
from tread_lab.terminal.console import answers, notices, say, show_lines
from tread_lab.terminal.plan import plan_lines


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A sweep that is ready to run.

    Attributes:
        begun, open_tasks: the tasks so far, and those with something left to do.
    """

    lab: Lab
    plan: Plan
    begun: Sequence[Task]
    open_tasks: Sequence[Task]
    devices: Devices
    resources: RunResources
    executor: str
    tracker: str
    hang_timeout: float | None
    as_json: bool

    @property
    def whole(self) -> set[str]:
        """The runs that were complete, with every file as it was written."""
        return {task.run for task in self.begun} - {task.run for task in self.open_tasks}

    def show(self, out: Console, *, hours: bool = False) -> None:
        """Print what will run and what it will cost."""
        for line in plan_lines(self.plan, self.lab, self.open_tasks, self.devices, hours=hours):
            out.print(line, markup=False)


def launch(
    file: str,
    overrides: Sequence[str],
    resources: RunResources,
    *,
    only_plan: bool,
    retry_failed: bool,
    executor: str,
    name: str | None,
    tracker: str,
    hang_timeout: float | None,
    as_json: bool,
    root: str | None,
) -> int:
    """Plan a sweep, run what is open, draw and rank; return the exit code."""
    check_known(tracker)
    lab = Lab.at(root)
    file_name, spec, experiment = load_sweep(file, overrides)
    devices = devices_of(executor, resources)
    digests = DataDigests(lab, say).named
    plan = plan_sweep(lab, name or file_name, spec, experiment, devices, digests, say=say)
    possible = plan.possible_tasks
    if all(task.spec.data.is_embedded or task.spec.data.digest for task in possible):
        check_edit(lab.sweep(plan.name), plan)  # else its runs have other names
    check_precisions((precision for task in possible for precision in _precisions(task)), devices)
    begun, retried = started_tasks(plan, lab), list[Task]()
    if retry_failed:
        retried = _retry_failed(lab, plan, begun, dry_run=only_plan)
    elif plan.stop_early is not None:
        _check_early(plan, lab)
    open_tasks = pending_tasks(plan, lab)
    if only_plan:  # else they are reopened by now
        runs = {task.run for task in (*open_tasks, *retried)}
        tasks = {task.run: task for task in (*begun, *open_tasks)}
        open_tasks = [task for run, task in tasks.items() if run in runs]
    ready = Launch(
        lab=lab,
        plan=plan,
        begun=begun,
        open_tasks=open_tasks,
        devices=devices,
        resources=resources,
        executor=executor,
        tracker=tracker,
        hang_timeout=hang_timeout,
        as_json=as_json,
    )
    if not only_plan:
        from tread_lab.commands.drive import drive  # torch

        return drive(ready)
    if any(map(_reads_files, open_tasks)):
        from tread_lab.sweep.preflight import missing_files  # torch

        show_lines(notices, missing_files(open_tasks))
    if as_json:
        print(plan_text(plan_with_costs(plan)), end="")
    else:
        ready.show(answers, hours=True)
    return DONE


def _precisions(task: Task) -> list[str]:
    """Return the precisions of training and of sampling."""
    samples = (spec for spec in task.evaluations if isinstance(spec, SamplesSpec))
    return [task.spec.precision, *(spec.sampler.precision for spec in samples)]


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
