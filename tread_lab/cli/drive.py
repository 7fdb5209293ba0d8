"""Runs what is open of a sweep under its lock: executor, progress, MLflow, figures, ranking."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack

from tread_lab.cli.console import notices, say
from tread_lab.cli.mlflow_view import MLFLOW, sync_if_possible, tracked
from tread_lab.cli.options import DONE, INTERRUPTED, UNFINISHED
from tread_lab.cli.progress import tasks_progress
from tread_lab.cli.show_plan import show_plan
from tread_lab.cli.show_status import show_unfinished
from tread_lab.config.errors import Unavailable, UserError
from tread_lab.config.labels import run_labels
from tread_lab.hardware import Devices
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import Stopwatch
from tread_lab.sweep.forecast import task_flops
from tread_lab.sweep.plan import Plan, store_plan
from tread_lab.sweep.preflight import check_references, preflight
from tread_lab.sweep.runner import Interrupted, Runner
from tread_lab.sweep.task import ListQueue, Task, TaskQueue, TimedQueue, reopen


def drive(
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
    folder, mistake = lab.sweep(plan.name), None
    check_references((lab.run(task.run), task.evaluations) for task in plan.possible_tasks)
    say(*preflight(open_tasks, devices))
    with folder.lock():
        reopen(lab, retried)
        store_plan(folder, plan)
        if plan.stop_early is None:  # all runs go on
            shutil.rmtree(folder.judged_path, ignore_errors=True)
        show_plan(notices, plan, lab, open_tasks, devices)
        queue = _queue(lab, plan, open_tasks)
        try:
            if not queue.exhausted:  # a search may have work where no run is open
                folder.drawn_path.unlink(missing_ok=True)  # first: this process may be killed
                _execute(lab, plan, open_tasks, runner, queue, tracker)
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
        code = _conclude(lab, plan.name, queue, mlflow=tracker == MLFLOW, as_json=as_json)
        if mistake is not None:
            raise mistake
        return code


def _execute(
    lab: Lab,
    plan: Plan,
    open_tasks: Sequence[Task],
    runner: Runner,
    queue: TimedQueue,
    tracker: str,
) -> None:
    """Run the tasks of the queue, with live progress and a tracker beside them."""
    folder, labels = lab.sweep(plan.name), run_labels(plan.possible_trials)
    shown = tasks_progress(open_tasks, lab, plan.possible_tasks, labels, page=folder.time_left_path)
    with ExitStack() as stack:
        # `figures` may have drawn meanwhile what there was.
        stack.callback(folder.drawn_path.unlink, missing_ok=True)
        stack.enter_context(tracked(lab, plan.name, tracker))
        watch = stack.enter_context(shown)
        stack.callback(queue.watch.note, now=True)
        runner.run(lab, queue, watch)


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
        from tread_lab.sweep.search.suggest import SearchQueue  # imports optuna

        queue = SearchQueue(lab, plan)
    return TimedQueue(queue, plan.hours, Stopwatch(lab.sweep(plan.name)))


def _conclude(lab: Lab, name: str, queue: TimedQueue, *, mlflow: bool, as_json: bool) -> int:
    """Draw the figures, sync MLflow, show the ranking; return the exit code."""
    from tread_lab.analysis.figures.catalogue import write_figures  # imports matplotlib
    from tread_lab.cli.show_ranking import show_places, show_ranking  # imports pandas

    folder = lab.sweep(name)
    figures = [] if folder.drawn else write_figures(lab, name)
    if mlflow:
        sync_if_possible(lab, name)
    show_ranking(lab, name, as_json=as_json)
    show_places(lab, folder, figures, mlflow=mlflow)
    if queue.closed:
        say(f"the hours of {name} are over: {queue.left}")
    return UNFINISHED if show_unfinished(lab, name) else DONE
