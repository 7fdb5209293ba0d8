"""The sweep command: plan, say what it will cost, run what is not done, draw and rank."""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tread_lab import screen
from tread_lab.commands.executors import check_one_device, share_of, show_gpus
from tread_lab.commands.mirror import live_sync, sync_if_possible
from tread_lab.commands.parents import written_out
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import Unavailable, UserError, lookup
from tread_lab.sweep.execution.executors import EXECUTORS

INTERRUPTED = 130


def sweep(options: Namespace) -> int:
    """Plan a sweep, run what is not done, draw and rank."""
    from tread_lab.config import load
    from tread_lab.sweep.plan import plan as plans
    from tread_lab.sweep.plan.disk import disk_need
    from tread_lab.sweep.plan.extension import plan_to_run
    from tread_lab.sweep.plan.forecast import forecast
    from tread_lab.sweep.plan.open_tasks import coming_tasks
    from tread_lab.sweep.plan.plan_json import plan_with_costs
    from tread_lab.sweep.plan.preflight import check_arithmetic
    from tread_lab.sweep.search.budget import open_budget

    check_one_device(options)
    if options.device_rates and not options.plan:
        raise UserError("--device-rates: forecasts only; add --plan")
    show_gpus(options)
    limits = [f"budget.{limit}" for limit in options.budget]
    name, spec, experiment = load.load_sweep(options.file, [*options.overrides, *limits])
    kind, share = lookup(EXECUTORS, options.executor, "--executor"), share_of(options)
    devices = kind.devices(share)
    lab = Lab.at(options.root)
    spec, experiment = (written_out(part, lab) for part in (spec, experiment))
    if devices.idle_gpus:
        screen.say(f"{devices.idle_gpus} GPUs of the cluster stay idle: --gpus 1 gives a run one")
    plan = plans.make_plan(options.name or name, spec, experiment, devices.names())
    if options.json and options.plan:
        print(plans.plan_text(plan_with_costs(plan)), end="")
        return 0
    plan = plan_to_run(lab.sweep(plan.name), plan, extend=options.extend)
    plan = replace(plan, budget=spec.budget, stop_early=spec.stop_early)  # no part of a stored plan
    check_arithmetic(plan.possible_tasks, devices)
    lanes = devices.slots
    if options.retry_failed is not None:
        _retry_failed(options, lab, plan)
    coming = coming_tasks(plan, lab)
    extends = _say_extension(lab, plan) if options.extend else False
    outlook = forecast(lab, coming, devices, start=kind.start_seconds, rates=options.device_rates)
    screen.show_plan(plan, lab, outlook.total(coming), lanes, asked=options.plan)
    screen.show_disk(disk_need(coming), lab, asked=options.plan)
    screen.show_evaluation_time(plan, outlook, asked=options.plan)
    if plan.budget is not None:
        screen.show_budget(
            plan, open_budget(lab, plan, outlook.seconds), coming, lanes, asked=options.plan
        )
    if options.plan:
        return 0
    return _drive(options, lab, plan, outlook, devices, redraw=extends)


def _say_extension(lab: Lab, plan: Any) -> bool:
    """Say what is added to the stored plan; whether anything is."""
    from tread_lab.sweep.plan.extension import what_is_added
    from tread_lab.sweep.plan.plan import load_plan

    folder = lab.sweep(plan.name)
    if not folder.plan_path.exists():
        return False
    before = load_plan(folder)
    screen.say(f"{plan.name}: {what_is_added(before, plan)}")
    return bool(plan.versions != before.versions)


def _retry_failed(options: Namespace, lab: Lab, plan: Any) -> None:
    """Say which failed runs are taken up again, and unless only the plan is asked for, do it."""
    from tread_lab.sweep.trial.retry_failed import failed_kind, failed_tasks, reopen

    kinds = [kind for kind in options.retry_failed.split(",") if kind]
    tasks = failed_tasks(lab, plan.possible_tasks, kinds)
    folders = [lab.run(task.run) for task in tasks]
    told = ", ".join(f"{folder.name} ({failed_kind(folder)})" for folder in folders)
    screen.say(f"running {len(tasks)} failed runs again: {told}" if tasks else "no run has failed")
    if not options.plan:
        with lab.sweep(plan.name).claim():
            for task in tasks:
                reopen(lab, task)


def _drive(
    options: Namespace, lab: Lab, plan: Any, outlook: Any, devices: Any, *, redraw: bool = False
) -> int:
    from tread_lab.sweep.execution.early_stopping import Early
    from tread_lab.sweep.execution.executor import Interrupted
    from tread_lab.sweep.plan.open_tasks import begun_tasks, coming_tasks
    from tread_lab.sweep.plan.plan import store_plan
    from tread_lab.sweep.plan.preflight import preflight
    from tread_lab.sweep.plan.same_provenance import check_unmixed, mixed

    kind = EXECUTORS[options.executor]
    if plan.stop_early is not None and not kind.side_by_side:
        raise UserError("stop_early: needs trials beside each other: use --executor ray, or null")
    folder, todo = lab.sweep(plan.name), coming_tasks(plan, lab)
    preflight(todo, devices)
    if not options.allow_mixed:
        check_unmixed(mixed(lab, begun_tasks(plan, lab), todo))
    with folder.claim():
        store_plan(folder, plan)
        mistake = None
        queue = _task_queue(lab, plan, outlook)
        try:
            if todo:
                with ExitStack() as stack:
                    stack.enter_context(live_sync(options, lab, plan.name))
                    watch = stack.enter_context(screen.progress(plan, todo, outlook))
                    stack.callback(queue.close)
                    executor = kind.make(
                        share_of(options), options.hang_timeout, Early.of(plan, lab)
                    )
                    executor.run(lab, queue, screen.DiskWatch(lab, todo, watch))
        except Interrupted:
            if queue.stop:  # the hours are over: what was asked for is done
                return _conclude(options, lab, plan.name, changed=True, queue=queue)
            screen.say(f"stopped with checkpoints; the same command continues {plan.name}")
            return INTERRUPTED
        except Unavailable:
            raise
        except UserError as error:  # of some runs; the others are done
            mistake = error
        changed = bool(todo) or redraw
        code = _conclude(options, lab, plan.name, changed=changed, queue=queue)
        if mistake is not None:
            raise mistake
        return code


def _task_queue(lab: Lab, plan: Any, outlook: Any) -> Any:
    """Where the executor gets its tasks: the open ones or a search, within the budget."""
    from tread_lab.records.time_spent import Stopwatch
    from tread_lab.specs.budget import BudgetSpec
    from tread_lab.sweep.search.budget import BudgetedQueue, open_budget
    from tread_lab.sweep.search.queue import ListQueue

    plan = replace(plan, budget=plan.budget or BudgetSpec())
    budget = open_budget(lab, plan, outlook.seconds)
    watch = Stopwatch(lab.sweep(plan.name).spent_path)
    if plan.search is None:
        return BudgetedQueue(
            ListQueue(plan.open_tasks(lab), after=plan.baselines_first), budget, watch
        )
    from tread_lab.sweep.search.search_queue import SearchQueue

    queue = SearchQueue(lab, plan, fits=lambda tasks: budget.fits(tasks, watch.seconds / 3600))
    return BudgetedQueue(queue, budget, watch)


def _conclude(options: Namespace, lab: Lab, name: str, *, changed: bool, queue: Any) -> int:
    """Figures, MLflow, table; the exit code says whether every run has a result."""
    from tread_lab.analysis.figures.catalogue import write_figures

    folder = lab.sweep(name)
    figures = write_figures(lab, name) if changed or not folder.figures.exists() else []
    if not options.no_mlflow:
        sync_if_possible(lab, name)
    screen.show_ranking(lab, name, as_json=options.json)
    screen.show_places(lab, folder, figures, mlflow=not options.no_mlflow)
    if queue.exhausted:
        screen.say(f"the budget of {name} is used up: {queue.left}")
    return int(screen.show_unfinished(lab, name))
