"""The train command: train one run and measure it as its experiment says."""

from __future__ import annotations

from dataclasses import replace

from tread_lab.commands.options import DONE, INTERRUPTED, UNFINISHED, Train
from tread_lab.commands.resolve import check_one_device, run_spec, together, visible_device
from tread_lab.config.load import load_experiment
from tread_lab.records.lab import Lab
from tread_lab.records.status import RunState
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.treatments import check_treatments, ema_notices
from tread_lab.sweep.data_digests import DataDigests
from tread_lab.sweep.plan.devices import Devices, check_precisions
from tread_lab.sweep.plan.disk import disk_line
from tread_lab.sweep.plan.plan import with_whole_parents
from tread_lab.sweep.preflight import check_references, preflight
from tread_lab.sweep.queues import ListQueue
from tread_lab.sweep.run_task import WorkerInfo, failed_tasks, reopen
from tread_lab.sweep.runner import InlineRunner, Interrupted
from tread_lab.sweep.task import Task, is_complete, with_ancestors
from tread_lab.terminal.console import notices, say, show_lines
from tread_lab.terminal.live_progress import run_progress
from tread_lab.terminal.status import show_run


def train(options: Train) -> int:
    """Train one run, its parents first, and measure it; return the exit code."""
    check_one_device()
    device = visible_device(options.device)
    processes = together(options.gpus, options.processes, device)
    worker = WorkerInfo(hang_timeout=options.hang_timeout, processes=processes)
    runner = InlineRunner(device=device, threads=options.threads, worker=worker)
    lab = Lab.at(options.root)
    loaded = load_experiment(options.experiment, options.overrides)
    spec = run_spec(with_whole_parents(loaded, lab), options.route, options.rate)
    spec = DataDigests(lab, say).named(spec)
    evaluations = decode_evaluations(loaded.evaluate, loaded.usual)
    task = Task(spec, evaluations, loaded.usual.with_probes(evaluations))
    if options.retry_failed:
        for failed_task in failed_tasks(lab, with_ancestors([task])):
            reopen(lab, failed_task)
    try:
        _complete(lab, task, runner)
    except Interrupted:
        say(
            "interrupted, a checkpoint is saved; run the same command again to continue run"
            f" {task.run}"
        )
        return INTERRUPTED
    show_run(lab.run(task.run))
    failed = lab.run(task.run).state() is RunState.FAILED
    return UNFINISHED if failed or not is_complete(lab, task) else DONE


def _complete(lab: Lab, task: Task, runner: InlineRunner) -> None:
    """Carry out what the run and its parents lack."""
    check_references([(lab.run(task.run), task.evaluations)])
    if is_complete(lab, task):
        return
    open_tasks = [task for task in with_ancestors([task]) if not is_complete(lab, task)]
    check_treatments(task.spec for task in open_tasks)
    here, per_run = Devices.here(runner.device), runner.worker.processes.count
    devices = replace(here, per_run=per_run)
    check_precisions((task.spec.precision for task in open_tasks), devices)
    show_lines(notices, preflight(open_tasks, devices))
    show_lines(notices, ema_notices(task.spec for task in open_tasks))
    show_lines(notices, [disk_line(open_tasks, lab)])
    with run_progress(open_tasks, lab) as watch:
        runner.run(lab, ListQueue(open_tasks), watch)
