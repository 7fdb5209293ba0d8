"""A sweep from its file to its ranking: plan, run what is open under the lock, draw and rank.

A plan alone imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from tread_lab.cli.console import answers, notices, say
from tread_lab.cli.options import (
    DONE,
    INTERRUPTED,
    UNFINISHED,
    AsJson,
    Concurrent,
    Cpus,
    Device,
    HangTimeout,
    Overrides,
    Processes,
    Root,
    SweepFile,
    SweepName,
    Tracker,
    check_device,
)
from tread_lab.cli.show_plan import show_plan, show_power
from tread_lab.cli.show_status import show_unfinished
from tread_lab.config.errors import Unavailable, UserError
from tread_lab.config.evaluation import SamplesSpec
from tread_lab.config.labels import run_labels
from tread_lab.config.load import load_sweep
from tread_lab.config.metrics import OWN_FEATURES, by_extractor
from tread_lab.config.units import counted
from tread_lab.hardware import Devices, RunResources, check_precisions, cpus_here
from tread_lab.hardware import gpus as visible_gpus
from tread_lab.records.early_stopping import EarlyStopping
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Stopwatch, plan_text
from tread_lab.sweep.forecast import task_flops
from tread_lab.sweep.plan import (
    Plan,
    check_edit,
    pending_tasks,
    plan_sweep,
    plan_with_costs,
    started_tasks,
    store_plan,
)
from tread_lab.sweep.planned_sweep import DataDigests
from tread_lab.sweep.task import (
    ListQueue,
    RungQueue,
    Task,
    TaskQueue,
    TimedQueue,
    failed,
    reopen,
)
from tread_lab.tracking.live import MLFLOW, check_tracker, tracked

if TYPE_CHECKING:
    from tread_lab.sweep.runner import Runner


def sweep(
    file: SweepFile,
    overrides: Overrides = (),
    *,
    plan: Annotated[bool, "print the plan and stop"] = False,
    power: Annotated[bool, "the plan with the smallest gap that 2 to 10 seeds detect"] = False,
    retry_failed: Annotated[bool, "retry all failed runs"] = False,
    executor: Annotated[Literal["ray", "inline"], "executor of the runs (ray)"] = "ray",
    gpus: Annotated[
        float | None, "GPUs per run, or a share such as 0.5 (default: 1 if there is a GPU)"
    ] = None,
    name: SweepName = None,
    tracker: Tracker = "mlflow",
    cpus: Cpus = 1,
    processes: Processes = 1,
    concurrent: Concurrent = None,
    device: Device = None,
    hang_timeout: HangTimeout = None,
    as_json: AsJson = False,
    root: Root = None,
) -> int:
    """Plan and run a sweep file.

    Example: tread-lab sweep route_placement.yaml --plan
    """
    check_tracker(tracker)
    resources = resources_of(device, cpus, gpus, concurrent, processes, ray=executor == "ray")
    lab = Lab.at(root)
    file_name, spec, experiment = load_sweep(file, overrides)
    devices = devices_of(executor, resources)
    digests = DataDigests(lab, say).named
    made = plan_sweep(lab, name or file_name, spec, experiment, devices, digests, say=say)
    possible = made.possible_tasks
    if all(task.spec.data.is_embedded or task.spec.data.digest for task in possible):
        check_edit(lab.sweep(made.name), made)  # else its runs have other names
    check_precisions((precision for task in possible for precision in _precisions(task)), devices)
    begun = started_tasks(made, lab)
    retried = failed(lab, begun) if retry_failed else []
    if retry_failed:
        say(f"running {counted(len(retried), 'failed run')} again" if retried else "no run failed")
    pending = pending_tasks(made, lab)
    tasks, runs = {t.run: t for t in (*begun, *pending)}, {t.run for t in (*pending, *retried)}
    open_tasks = [task for run, task in tasks.items() if run in runs]
    if not (plan or power):
        runner = make_runner(
            executor,
            resources,
            runs_per_device=devices.runs_per_device,
            hang_timeout=hang_timeout,
        )
        return _drive(
            lab,
            made,
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
        print(plan_text(plan_with_costs(made)), end="")
    else:
        show_plan(answers, made, lab, open_tasks, devices)
        if power:
            show_power(answers, lab, {task.spec.model.name for task in possible})
    return DONE


def resources_of(
    device: str | None,
    cpus: int,
    gpus: float | None,
    concurrent: int | None,
    processes: int,
    *,
    ray: bool,
) -> RunResources:
    """Return the resources of each run of a sweep: by default a GPU if one is available.

    Raises:
        UserError: as in `check_device`, or inconsistent numbers.
    """
    check_device(device, ray=ray)
    if gpus is None:
        gpus = float(bool(visible_gpus()) if device is None else device.startswith("cuda"))
    return RunResources(device, cpus, gpus, concurrent, processes)


def _drive(
    lab: Lab,
    plan: Plan,
    open_tasks: Sequence[Task],
    devices: Devices,
    runner: Runner,
    *,
    retried: Sequence[Task],
    tracker: str,
    as_json: bool,
) -> int:
    """Run what is open under the sweep's lock, then conclude; return the exit code.

    Args:
        retried: tasks of failed runs, which are reopened once everything is checked.

    Raises:
        Unavailable: the disk is full or the cluster is lost.
        UserError: a mistake of some runs, raised once the others have ended.
    """
    from tread_lab.sweep.preflight import check_references, preflight  # torch
    from tread_lab.sweep.runner import Interrupted

    folder, mistake = lab.sweep(plan.name), None
    check_references((lab.run(task.run), task.evaluations) for task in plan.possible_tasks)
    say(*preflight(open_tasks, devices))
    with folder.lock():
        reopen(lab, retried)
        store_plan(folder, plan)
        show_plan(notices, plan, lab, open_tasks, devices)
        queue = _queue(lab, plan, open_tasks)
        ran = not queue.done  # a search may have work where no run is open
        try:
            with tracked(lab, plan.name, tracker, say):
                if ran:
                    _execute(lab, plan, open_tasks, runner, queue)
        except Interrupted:
            if not queue.stop:  # else the hours are over, as was asked
                say(
                    "interrupted after saving checkpoints;"
                    f" rerun the command to continue {plan.name}"
                )
                return INTERRUPTED
        except Unavailable:
            raise
        except UserError as error:  # of some runs; the others are done
            mistake = error
        code = _conclude(lab, plan.name, queue, ran=ran, mlflow=tracker == MLFLOW, as_json=as_json)
        if mistake is not None:
            raise mistake
        return code


def _execute(
    lab: Lab, plan: Plan, open_tasks: Sequence[Task], runner: Runner, queue: TimedQueue
) -> None:
    """Run the tasks of the queue, with live progress."""
    from tread_lab.cli.progress import tasks_progress  # torch

    folder, labels = lab.sweep(plan.name), run_labels(plan.possible_trials)
    shown = tasks_progress(open_tasks, lab, plan.possible_tasks, labels, page=folder.time_left_path)
    folder.remove_figures()
    with shown as watch:
        try:
            runner.run(lab, queue, watch)
        finally:
            queue.watch.note(now=True)


def _queue(lab: Lab, plan: Plan, tasks: Sequence[Task]) -> TimedQueue:
    """Return what hands out tasks within the hours: the open ones, or those of a search.

    Baselines come first, so that whatever ends has something to be compared with; then the longest.
    """
    queue: TaskQueue
    if plan.search_spec is None:
        baselines = {trial.baseline for trial in plan.trials}
        longest_first = sorted(tasks, key=task_flops, reverse=True)
        ordered = sorted(longest_first, key=lambda task: task.run not in baselines)
        queue = ListQueue(ordered)
        if early := EarlyStopping.of(lab, plan):
            queue = RungQueue(early, ordered, {task.run: task for task in plan.tasks})
    else:
        from tread_lab.sweep.suggest import SearchQueue

        queue = SearchQueue(lab, plan)
    return TimedQueue(queue, plan.hours, Stopwatch(lab.sweep(plan.name)))


def _conclude(
    lab: Lab, name: str, queue: TimedQueue, *, ran: bool, mlflow: bool, as_json: bool
) -> int:
    """Draw the figures if anything ran, show the ranking; return the exit code."""
    from tread_lab.analysis.figures.catalogue import write_figures  # imports matplotlib
    from tread_lab.cli.show_ranking import show_places, show_ranking  # imports pandas

    folder = lab.sweep(name)
    if ran or not folder.figures.exists():
        write_figures(lab, name)
    show_ranking(lab, name, as_json=as_json)
    show_places(lab, folder, mlflow=mlflow)
    if queue.stop and not queue.done:
        say(f"the hours of {name} are used up; rerun the command with more hours to continue")
    return UNFINISHED if show_unfinished(lab, name) else DONE


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


def make_runner(
    executor: str,
    resources: RunResources,
    *,
    runs_per_device: int = 1,
    hang_timeout: float | None = None,
) -> Runner:
    """Return the runner `ray` or `inline`."""
    from tread_lab.sweep.run_task import WorkerInfo
    from tread_lab.sweep.runner import InlineRunner
    from tread_lab.train.ranks import Processes

    worker = WorkerInfo(
        processes=Processes(resources.devices),
        hang_timeout=hang_timeout,
        runs_per_device=runs_per_device,
    )
    if executor == "inline":
        device = resources.device or resources.worker_device
        return InlineRunner(device=device, threads=resources.cpus, worker=worker)
    from tread_lab.sweep.ray_runner import RayRunner

    return RayRunner(resources, worker)


def devices_of(executor: str, resources: RunResources) -> Devices:
    """Return the devices where the runs of an executor will run.

    Raises:
        UserError: a run asks for more than the machine has.
        Unavailable: the cluster at RAY_ADDRESS does not answer.
    """
    if executor == "ray" and os.environ.get("RAY_ADDRESS"):
        from tread_lab.sweep.ray_runner import cluster_devices

        return cluster_devices(resources)
    found = len(visible_gpus()) if resources.gpus else 0
    if resources.gpus > found:
        raise UserError(f"--gpus: must be at most {found} on this machine, got {resources.gpus:g}")
    slots = resources.slots(cpus_here(), found) if executor == "ray" else 1
    if not slots:
        raise UserError(f"--cpus: must be at most {cpus_here()} here, got {resources.cores}")
    here = Devices.here(resources.device or resources.worker_device)
    return resources.on(here, slots)
