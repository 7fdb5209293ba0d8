"""The plan of a sweep before it runs: its runs, the cells left out and why, its cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from tread_lab.cost.training import cost
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import state_in_sweep
from tread_lab.specs.decode import encode
from tread_lab.specs.evaluation import (
    AT,
    END,
)
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.specs.expansion import ExcludedCells
from tread_lab.specs.labels import cell_text, run_labels
from tread_lab.specs.sweep import SearchSpec
from tread_lab.specs.trials import QUESTIONS, steps_off
from tread_lab.specs.units import counted, duration, span
from tread_lab.sweep.plan.forecast import RemainingTime
from tread_lab.sweep.plan.plan import Plan, pending_tasks
from tread_lab.terminal.console import ROWS, answer, fitted, show_lines


@dataclass(frozen=True)
class Measurement:
    """An evaluation of a run that `tread-lab evaluate` would carry out, or that is done.

    Attributes:
        images: generated ones, or held-out ones that it reads.
    """

    run: str
    evaluation: str
    images: int
    done: bool


STOPS = (
    "stop_early judges by the gap in training loss, which does not rank placements: a route that"
    " would be best may be stopped"
)
_NAMED = 5  # runs that are trained again; the others are counted


def show_plan(out: Console, plan: Plan, lab: Lab, remaining: RemainingTime, slots: int) -> None:
    """Print the runs of a plan, the cells left out, and the cost in FLOPs and time.

    Args:
        slots: how many runs go at once.
    """
    show_lines(out, [f"{plan.name}: {plan.question}" if plan.question else plan.name])
    out.print(_runs_table(plan, lab, out.width))
    if len(plan.tasks) > ROWS:
        show_lines(out, [f"... and {len(plan.tasks) - ROWS} more"])
    show_lines(out, _left_out(plan))
    if plan.stop_early is not None:
        show_lines(out, [STOPS])
    show_lines(out, [*_during_training(plan), *_trained_again(plan, lab)])
    if plan.search_spec is not None:
        show_lines(out, _search(plan, plan.search_spec, lab))
    show_lines(out, [_size(plan), *_matched(plan), _cost(plan, remaining, slots)])


def _during_training(plan: Plan) -> Iterator[str]:
    """Yield what is measured of every run at which steps beside its end."""
    sources = {task.spec.data.source for task in plan.tasks or plan.possible_tasks}
    source = sources.pop() if len(sources) == 1 else None
    names = MetricNames(plan.evaluation_defaults)
    steps: dict[str, dict[str, None]] = {}  # by evaluation
    for spec in plan.evaluations:
        label = names.label(encode(replace(spec, step=None)), source)
        steps.setdefault(label, {})[END if spec.step is None else str(spec.step)] = None
    labels: dict[tuple[str, ...], list[str]] = {}  # by steps
    for label, own in steps.items():
        labels.setdefault(tuple(own), []).append(label)
    for shared, measured in labels.items():
        if shared != (END,):
            yield f"every run is measured {AT} {', '.join(shared)}: {', '.join(measured)}"


def _trained_again(plan: Plan, lab: Lab) -> Iterator[str]:
    """Yield a line about the runs that an evaluation at a step without checkpoint trains again."""
    steps = {task.run: task.lacking(lab.run(task.run)) for task in plan.tasks}
    labels = run_labels(plan.trials)
    again = [f"{labels[run]} {AT} {', '.join(map(str, own))}" for run, own in steps.items() if own]
    if again:
        more = f" and {len(again) - _NAMED} more" if len(again) > _NAMED else ""
        yield f"trained again, for checkpoints that are not kept: {'; '.join(again[:_NAMED])}{more}"


def _runs_table(plan: Plan, lab: Lab, width: int) -> Table:
    """Return a row per run, as many as there is room for."""
    labels = run_labels(plan.trials)
    stopped = lab.sweep(plan.name).stopped() if plan.stop_early else {}
    rows = []
    for task in plan.tasks[:ROWS]:
        state = state_in_sweep(lab.run(task.run).state(), task.run, stopped)
        price = cost(task.spec)
        steps = [str(task.spec.train.steps)] if plan.match else []
        prices = f"{price.speedup:.2f}x", f"{price.train_flops:.2e}"
        rows.append([task.run, labels[task.run], *steps, *prices, state])
    heads = ("run", "trial", *(["steps"] if plan.match else []), "speed-up", "train FLOPs", "state")
    return fitted(heads, rows, drop=("run", "train FLOPs", "speed-up"), width=width)


def _left_out(plan: Plan) -> Iterator[str]:
    """Yield a line for every reason for which cells are not planned, or not planned twice."""
    for hole in plan.excluded:
        yield f"{counted(hole.count, 'cell')} not planned: {hole.why} ({_examples(hole)})"
    for same in plan.duplicates:
        count = counted(same.count, "cell")
        yield f"{count}: {same.why} ({_examples(same)})"


def _examples(hole: ExcludedCells) -> str:
    return f"e.g. {'; '.join(cell_text(cell) for cell in hole.examples[:2])}"


def _size(plan: Plan) -> str:
    """Return `17 runs of tiny, DiT-12x32/2 on fashion16, 500 steps of 16: 1 baseline, ...`."""
    specs = [task.spec for task in plan.tasks or plan.possible_tasks]
    models = sorted(model.name for model in {spec.model for spec in specs})
    model = models[0] if len(models) == 1 else f"{len(models)} models"
    data = ", ".join(sorted({spec.data.source for spec in specs}))
    steps, batch = (_span({getattr(s.train, field) for s in specs}) for field in ("steps", "batch"))
    roles = Counter(trial.role for trial in plan.trials)
    shown = [role for role in ("baseline", "control", "trial") if roles[role] or role != "control"]
    parents = f", {counted(plan.parents, 'parent')} to start from" if plan.parents else ""
    return (
        f"{counted(len(plan.tasks), 'run')} of {plan.experiment}, {model} on {data},"
        f" {steps} steps of {batch}: {', '.join(counted(roles[role], role) for role in shown)}"
        f"{parents}"
    )


def _matched(plan: Plan) -> Iterator[str]:
    """Yield what trials are matched in, and those that are off by more than a step."""
    if plan.match is None:
        return
    specs = {trial.run: trial.spec for trial in plan.possible_trials}
    trials = [t for t in plan.possible_trials if t.baseline]
    off = {t.run: steps_off(plan.price, t.spec, specs[t.baseline]) for t in trials if t.baseline}
    most = max(map(abs, off.values()))
    yield (
        f"compared {QUESTIONS[plan.match]}: every trial spends what its baseline spends, to"
        f" {most:.2g} of a step"
    )
    labels = run_labels(trials)
    for run in (run for run, steps in off.items() if abs(steps) > 1):
        yield f"{labels[run]} spends {off[run]:+.1f} steps of its baseline's: nothing is nearer"


def _span(numbers: Collection[float], form: str = "") -> str:
    return span(f"{n:{form}}" for n in (min(numbers), max(numbers)))


def _cost(plan: Plan, remaining: RemainingTime, slots: int) -> str:
    """Return the training FLOPs of the runs that are certain, and the time that is left."""
    of_certain_runs = "" if plan.search_spec is None else " of runs that are certain"
    flops = f"{plan.train_flops:.2e} training FLOPs{of_certain_runs}"
    if remaining.open_runs == 0:
        done = "everything is done" if plan.search_spec is None else "no run is open"
        return f"{flops}; {done}"
    trained = f" ({remaining.trained} trained, to be measured)" if remaining.trained else ""
    runs = f"{flops}; {counted(remaining.open_runs, 'run')} open{trained}, {slots} at once"
    if remaining.seconds is None:
        return f"{runs}; no time is predicted (no run of this kind has ended on this device)"
    source = f", {remaining.source}" if remaining.source else ""
    return f"{runs}: about {duration(remaining.seconds)}{source}"


def _search(plan: Plan, spec: SearchSpec, lab: Lab) -> Iterator[str]:
    """Yield how large the space is, how much of it is tried, and what that costs."""
    suggested = len(lab.sweep(plan.name).suggestions())
    trials = min(spec.trials, len(plan.space))
    seeds = sum(t.role == "trial" for t in plan.trials_of(plan.space[0]))
    begun = f", {suggested} of them suggested" if suggested else ""
    yield (
        f"search by {spec.sampler}: {trials} of {len(plan.space)} cells{begun},"
        f" {counted(seeds, 'run')} each, for {' and '.join(spec.objectives)};"
        f" {spec.parallel} at once"
    )
    if suggested < trials:
        flops = sum(cost(task.spec).train_flops for task in pending_tasks(plan, lab))
        yield (
            f"{counted(trials - suggested, 'trial')} still to suggest; with cells from all over the"
            f" space for these, open runs take {flops:.2e} training FLOPs"
        )


def hours_lines(plan: Plan, remaining: RemainingTime) -> Iterator[str]:
    """Yield parameters, and the device-hours of what is open where a time is predicted."""
    tasks = plan.tasks or plan.possible_tasks
    counts: dict[str, set[int]] = {}
    for task in tasks:
        counts.setdefault(task.spec.model.name, set()).add(cost(task.spec).parameters)
    yield "parameters: " + ", ".join(f"{name} {_span(own, ',')}" for name, own in counts.items())
    if remaining.seconds:
        yield f"{remaining.device_seconds / 3600:,.3g} device-hours with evaluations"


def show_measurements(found: Sequence[Measurement], *, as_json: bool) -> None:
    """Print what would be measured of how many runs and images."""
    if as_json:
        print(json.dumps([vars(one) for one in found]))
        return
    for label in dict.fromkeys(one.evaluation for one in found):
        own = [one for one in found if one.evaluation == label]
        done = sum(one.done for one in own)
        measured = f", {done} measured already" if done else ""
        answer(f"{label} of {counted(len(own), 'run')}, {own[0].images:,} images each{measured}")
    todo = [one for one in found if not one.done]
    answer(f"{counted(len(todo), 'evaluation')} to measure")
