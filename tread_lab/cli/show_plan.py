"""The plan of a sweep before it runs: its runs, the cells left out and why, its cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tread_lab.cli.console import ROWS, table
from tread_lab.config.evaluation import (
    AT,
)
from tread_lab.config.labels import cell_text, run_labels
from tread_lab.config.sweep import QUESTIONS, SearchSpec
from tread_lab.config.units import counted, duration, span
from tread_lab.cost.training import cost
from tread_lab.hardware import Devices
from tread_lab.records.early_stopping import EarlyStopping, stopped_early
from tread_lab.records.lab import Lab, run_states
from tread_lab.records.sweep_folder import hours_text
from tread_lab.sweep.forecast import RemainingTime, disk_line, forecast
from tread_lab.sweep.plan import Plan, pending_tasks
from tread_lab.sweep.task import Task

SEEDS = (2, 3, 4, 5, 6, 8, 10)
TINY = "DiT-12x32/2"  # the network of STATED
STATED = (  # of docs/embedded.md, where a lab has none of its own
    ("embedded images, tiny, 800 steps, equal FLOPs: 16 placements x 3 seeds", 0.0037),
    ("embedded images, tiny, 120 steps: 78 placements x 4 seeds", 0.0097),
)
_NAMED = 5  # runs that are trained again; the others are counted


def show_plan(
    out: Console, plan: Plan, lab: Lab, open_tasks: Sequence[Task], devices: Devices
) -> None:
    """Print the runs of a plan, excluded cells, and the cost in FLOPs, time and disk."""
    for line in _lines(plan, lab, open_tasks, devices):
        out.print(line, markup=False)


def show_power(out: Console, lab: Lab, models: Collection[str]) -> None:
    """Print the smallest held-out gap that 2 to 10 seeds detect with 80% power."""
    from tread_lab.results.intervals import smallest_gap  # scipy

    found = {of: value for model in sorted(models) for of, value in deviations(lab, model)}
    if not found:
        out.print("power: requires an earlier sweep of this network over two or more seeds")
        return
    gaps = ((value, *(smallest_gap(value, n) for n in SEEDS)) for value in found.values())
    rows = ([of, *(f"{gap:.2g}" for gap in own)] for of, own in zip(found, gaps))
    out.print(
        "smallest held-out gap detected with 80% power (two-sided, 5%) for one cell chosen in"
        " advance, by standard deviation:"
    )
    out.print(table(["observed in", "deviation", *(f"{n} seeds" for n in SEEDS)], rows))


def deviations(lab: Lab, model: str) -> list[tuple[str, float]]:
    """Return the standard deviations of a network's gaps over seeds (`deviation_of`) with the
    sweeps they come from; for the embedded network without sweeps, recorded values."""
    from tread_lab.results import trials_frame  # pandas
    from tread_lab.results.cells import deviation_of

    found = []
    for name in lab.sweeps():
        frame = trials_frame(lab, name)
        value = deviation_of(frame)
        if math.isfinite(value) and model in {*frame["model"]}:
            of = f"{name}: {frame['cell'].nunique()} cells x {frame['seed'].nunique()} seeds"
            found.append((of, value))
    return found or [*STATED] * (model == TINY)


def _lines(
    plan: Plan, lab: Lab, open_tasks: Sequence[Task], devices: Devices
) -> Iterator[str | Table]:
    yield f"{plan.name}: {plan.question}" if plan.question else plan.name
    yield _runs_table(plan, lab)
    if len(plan.tasks) > ROWS:
        yield f"... and {len(plan.tasks) - ROWS} more"
    for hole in plan.excluded:
        examples = "; ".join(cell_text(cell) for cell in hole.examples[:2])
        cells = counted(hole.count, "cell")
        yield f"{cells} not planned: `where` keeps only {hole.rule} (e.g. {examples})"
    if early := EarlyStopping.of(lab, plan):
        yield _stop_early(early)
    yield from _trained_again(plan, lab)
    if plan.search_spec is not None:
        yield _search(plan, plan.search_spec, lab)
    yield _size(plan)
    if plan.match is not None:
        yield f"compared {QUESTIONS[plan.match]}, to the nearest step"
    yield _cost(plan, forecast(lab, open_tasks, devices), devices.slots)
    if open_tasks:
        yield disk_line(open_tasks, lab)
    if limit := hours_text(lab.sweep(plan.name), plan.hours):
        yield f"hours: {limit}"


def _trained_again(plan: Plan, lab: Lab) -> Iterator[str]:
    """Yield a line about the runs that an evaluation at a step without checkpoint trains again."""
    steps = {task.run: task.lacking(lab.run(task.run)) for task in plan.tasks}
    labels = run_labels(plan.trials)
    again = [f"{labels[run]} {AT} {', '.join(map(str, own))}" for run, own in steps.items() if own]
    if again:
        more = f" and {len(again) - _NAMED} more" if len(again) > _NAMED else ""
        yield f"trained again, for checkpoints that are not kept: {'; '.join(again[:_NAMED])}{more}"


def _stop_early(early: EarlyStopping) -> str:
    """Return at which steps cells are compared, how few continue, and what that saves at most."""
    steps, counts = [0, *early.rungs, early.shortest], [len(early.cells)]
    for _ in early.rungs:
        counts.append(max(counts[-1] // early.reduction, 1))
    trained = sum((b - a) * n for a, b, n in zip(steps, steps[1:], counts))
    saved = 1 - trained / (early.shortest * counts[0])
    rungs, left = (", ".join(map(str, numbers)) for numbers in (early.rungs, counts[1:]))
    return (
        f"stop_early: compares {counted(counts[0], 'cell')} at step {rungs} of the shortest run and"
        f" continues at least {left}; saves at most {saved:.0%} of their training, not subtracted"
        " below"
    )


def _runs_table(plan: Plan, lab: Lab) -> Table:
    """Return a row per run, as many as there is room for."""
    labels = run_labels(plan.trials)
    tasks = plan.tasks[:ROWS]
    states = run_states(lab, [task.run for task in tasks], stopped_early(lab, plan))
    rows = (
        [
            task.run,
            labels[task.run],
            str(task.spec.train.steps),
            f"{cost(task.spec).speedup:.2f}x",
            f"{cost(task.spec).train_flops:.2e}",
            states[task.run],
        ]
        for task in tasks
    )
    return table(("run", "cell", "steps", "speed-up", "train FLOPs", "state"), rows)


def _size(plan: Plan) -> str:
    """Return `17 runs of tiny, DiT-12x32/2 (238,980 parameters) on fashion16, ...`."""
    tasks = plan.tasks or plan.possible_tasks
    sizes: dict[str, set[int]] = {}
    for task in tasks:
        sizes.setdefault(task.spec.model.name, set()).add(cost(task.spec).parameters)
    models = ", ".join(f"{name} ({_span(own, ',')} parameters)" for name, own in sizes.items())
    data = ", ".join(sorted({task.spec.data.source for task in tasks}))
    steps = _span({task.spec.train.steps for task in tasks})
    batch = _span({task.spec.train.batch for task in tasks})
    roles = Counter(trial.role for trial in plan.trials)
    counts = [counted(n, role) for role, n in roles.items()]
    counts += [f"{counted(plan.parents, 'parent')} to start from"] * bool(plan.parents)
    return (
        f"{counted(len(plan.tasks), 'run')} of {plan.experiment}, {models} on {data}, {steps} steps"
        f" of {batch}: {', '.join(counts)}"
    )


def _span(numbers: Collection[float], form: str = "") -> str:
    return span(f"{n:{form}}" for n in (min(numbers), max(numbers)))


def _cost(plan: Plan, remaining: RemainingTime, slots: int) -> str:
    """Return the training FLOPs of the runs that are certain, and the time that is left."""
    flops = f"{plan.train_flops:.2e} training FLOPs"
    if remaining.open_runs == 0:
        return f"{flops}; everything is done" if plan.search is None else f"{flops}; no run is open"
    trained = f" ({remaining.trained} trained, to be measured)" if remaining.trained else ""
    runs = f"{flops}; {counted(remaining.open_runs, 'run')} open{trained}, {slots} at once"
    if remaining.seconds is None:
        return f"{runs}; no time is predicted (no run of this kind has ended on this device)"
    hours = f"{remaining.device_seconds / 3600:,.3g} device-hours"
    return f"{runs}: about {duration(remaining.seconds)} ({hours}), {remaining.source}"


def _search(plan: Plan, spec: SearchSpec, lab: Lab) -> str:
    """Return how large the space is, how much of it is tried, and what that costs at most."""
    suggested = len(lab.sweep(plan.name).suggestions())
    trials, noun = min(spec.trials, plan.most), "runs" if plan.places else "cells"
    seeds = sum(t.role == "trial" for t in plan.trials_of(plan.space[0]))
    flops = sum(cost(task.spec).train_flops for task in pending_tasks(plan, lab))
    return (
        f"search by {spec.sampler}: {trials} of {plan.most} {noun}, {suggested} suggested,"
        f" {counted(seeds, 'run')} each, {spec.parallel} at once, for"
        f" {' and '.join(spec.objectives)}; about {flops:.2e} training FLOPs, with cells from all"
        " over the space for those to come"
    )
