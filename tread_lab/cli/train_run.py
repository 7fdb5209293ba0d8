"""Trains one run, its parents first, and measures it as its experiment says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from tread_lab.cli.console import say
from tread_lab.cli.options import (
    DONE,
    INTERRUPTED,
    UNFINISHED,
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
    run_spec,
)
from tread_lab.cli.progress import tasks_progress
from tread_lab.cli.show_status import show_run
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import decode_evaluations
from tread_lab.config.load import load_experiment
from tread_lab.config.sweep import check_treatments, ema_notices
from tread_lab.hardware import Devices, check_precisions
from tread_lab.hardware import gpus as visible_gpus
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.sweep.forecast import disk_line
from tread_lab.sweep.plan import with_whole_parents
from tread_lab.sweep.planned_sweep import DataDigests
from tread_lab.sweep.preflight import check_references, preflight
from tread_lab.sweep.run_task import WorkerInfo
from tread_lab.sweep.runner import InlineRunner, Interrupted
from tread_lab.sweep.task import ListQueue, Task, failed, is_complete, reopen, with_ancestors
from tread_lab.train.ranks import Processes


def train(
    experiment: Annotated[str, "a path, or the name of a shipped file or of one in ./experiments"],
    overrides: Overrides = (),
    *,
    retry_failed: Annotated[bool, "run it again if it has failed"] = False,
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
    lab, loaded = Lab.at(root), load_experiment(experiment, overrides)
    spec = run_spec(with_whole_parents(loaded, lab), route, rate)
    spec = DataDigests(lab, say).named(spec)
    evaluations = decode_evaluations(loaded.evaluate, loaded.usual)
    task = Task(spec, evaluations, loaded.usual.with_probes(evaluations))
    retried = failed(lab, with_ancestors([task])) if retry_failed else []
    check_references([(lab.run(task.run), task.evaluations)])
    try:
        if retried or not is_complete(lab, task):
            _complete(lab, task, retried, runner)
    except Interrupted:
        say(
            "interrupted, a checkpoint is saved; run the same command again to continue run"
            f" {task.run}"
        )
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
        UserError: this machine has not so many GPUs, or the device is of the other kind.
    """
    here = len(visible_gpus())
    if processes and (gpus or (device != "cpu" and here)):
        raise UserError("--processes: on CPUs, say --device cpu; --gpus says how many GPUs")
    if gpus and device not in (None, "cuda"):
        raise UserError(f"--device {device}: --gpus {gpus} takes the first GPUs; leave one out")
    if gpus and gpus > here:
        raise UserError(f"--gpus: {gpus} for a run, and this machine has {here}")
    return Processes(gpus or processes or 1)
