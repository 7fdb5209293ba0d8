"""Plans a sweep, shows what will run, and starts it; a plan alone imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.cli.console import answers, say
from tread_lab.cli.mlflow_view import check_known
from tread_lab.cli.options import DONE
from tread_lab.cli.show_plan import show_plan
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.config.load import load_sweep
from tread_lab.config.metrics import OWN_FEATURES, by_extractor
from tread_lab.config.units import counted
from tread_lab.hardware import check_precisions
from tread_lab.records.lab import Lab
from tread_lab.records.stored_plan import plan_text
from tread_lab.sweep.plan import (
    check_edit,
    pending_tasks,
    plan_sweep,
    plan_with_costs,
    started_tasks,
)
from tread_lab.sweep.planned_sweep import DataDigests
from tread_lab.sweep.resources import RunResources, devices_of, make_runner
from tread_lab.sweep.task import Task, failed


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
    begun = started_tasks(plan, lab)
    retried = failed(lab, begun) if retry_failed else []
    early = None
    if plan.stop_early is not None:
        from tread_lab.sweep.early_stopping import EarlyStopping  # torch

        early = EarlyStopping.of(plan, lab, again=[task.run for task in retried])
    if retry_failed:
        say(f"running {counted(len(retried), 'failed run')} again" if retried else "no run failed")
    pending = pending_tasks(plan, lab)
    tasks, runs = {t.run: t for t in (*begun, *pending)}, {t.run for t in (*pending, *retried)}
    open_tasks = [task for run, task in tasks.items() if run in runs]
    if not only_plan:
        from tread_lab.cli.drive import drive  # torch

        runner = make_runner(
            executor,
            resources,
            runs_per_device=devices.runs_per_device,
            hang_timeout=hang_timeout,
            early=early,
        )
        return drive(
            lab,
            plan,
            open_tasks,
            devices,
            runner,
            retried=retried,
            tracker=tracker,
            as_json=as_json,
        )
    if any(map(_reads_files, open_tasks)):
        from tread_lab.sweep.preflight import missing_files  # torch

        say(*missing_files(open_tasks))
    if as_json:
        print(plan_text(plan_with_costs(plan)), end="")
    else:
        show_plan(answers, plan, lab, open_tasks, devices)
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
