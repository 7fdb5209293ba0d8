"""The train command: train one run and measure it as its experiment says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.commands.executors import check_one_device, visible_device
from tread_lab.commands.exit_codes import DONE, INTERRUPTED, UNFINISHED
from tread_lab.commands.parents import written_out
from tread_lab.commands.routes import run_spec
from tread_lab.config import load
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.screen.console import say
from tread_lab.screen.disk import DiskWatch, show_disk
from tread_lab.screen.live_progress import run_progress
from tread_lab.screen.status import show_run
from tread_lab.specs.evaluation import decode_evaluations
from tread_lab.sweep.execution.executor import InlineExecutor, Interrupted
from tread_lab.sweep.plan.devices import Devices
from tread_lab.sweep.plan.disk import disk_need
from tread_lab.sweep.plan.preflight import preflight
from tread_lab.sweep.trial.family import with_ancestors
from tread_lab.sweep.trial.retry_failed import failed_tasks, reopen
from tread_lab.sweep.trial.trial import Task, is_complete


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab train`."""

    root: str | None
    experiment: str
    overrides: Sequence[str]
    route: Sequence[str] | None
    rate: float | None
    device: str | None
    threads: int
    retry_failed: bool
    hang_timeout: float | None


def run(options: Options) -> int:
    """Train one run, its parents first, and measure it; return the exit code."""
    check_one_device()
    device = visible_device(options.device)
    lab = Lab.at(options.root)
    experiment = load.load_experiment(options.experiment, options.overrides)
    spec = run_spec(written_out(experiment, lab), options.route, options.rate)
    task = Task(spec, decode_evaluations(experiment.evaluate, experiment.sampler))
    if options.retry_failed:
        for failed_task in failed_tasks(lab, with_ancestors([task])):
            reopen(lab, failed_task)
    try:
        _complete(lab, task, device, options)
    except Interrupted:
        name = task.run
        say(
            f"interrupted, a checkpoint is saved; run the same command again to continue run {name}"
        )
        return INTERRUPTED
    folder = lab.run(task.run)
    show_run(folder)
    unfinished = folder.state() is RunState.FAILED or not is_complete(lab, task)
    return UNFINISHED if unfinished else DONE


def _complete(lab: Lab, task: Task, device: str | None, options: Options) -> None:
    """Carry out what the run and its parents lack."""
    if is_complete(lab, task):
        return
    open_tasks = [task for task in with_ancestors([task]) if not is_complete(lab, task)]
    preflight(open_tasks, Devices.here(device))
    show_disk(disk_need(open_tasks), lab)
    executor = InlineExecutor(
        device=device, threads=options.threads, hang_timeout=options.hang_timeout
    )
    with run_progress(open_tasks, lab) as watch:
        executor.run(lab, open_tasks, DiskWatch(lab, open_tasks, watch))
