"""A plan before it runs: its runs, what is left out and why, what it will cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rich.console import Console

from tread_lab.engine.cost.training import cost
from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab
from tread_lab.records.stopped_early import state_in_sweep
from tread_lab.screen.console import ROWS, answers, fitted, notices
from tread_lab.specs.decode import encode
from tread_lab.specs.evaluation import SamplesSpec
from tread_lab.specs.evaluation_labels import evaluation_label, setting_names
from tread_lab.specs.labels import cell_text, run_labels
from tread_lab.specs.run import RunSpec
from tread_lab.specs.units import counted, duration
from tread_lab.sweep.plan.forecast import Forecast, RemainingTime
from tread_lab.sweep.plan.open_tasks import search_forecast
from tread_lab.sweep.plan.plan import Plan
from tread_lab.sweep.search.budget import Budget
from tread_lab.sweep.trial.task import Task

Say = Callable[[str], None]
_NAMED = 5  # runs that do not fit the budget; the others are counted


def show_plan(
    plan: Plan, lab: Lab, estimate: RemainingTime, slots: int, *, asked: bool = False
) -> None:
    """What will run, what is left out and why, what it will cost.

    Args:
        asked: the plan is what the command was asked for, and goes to stdout.
    """
    out = answers if asked else notices
    say = _say(out)
    tasks = plan.tasks
    baselines = sum(trial.role == "baseline" for trial in plan.trials)
    say(f"{plan.name}: {plan.question}" if plan.question else plan.name)
    labels = run_labels(plan.trials)
    heads = ("run", "trial", "speed-up", "train FLOPs", "state")
    rows = []
    before = stopped_early.read(lab.sweep(plan.name).stopped_path) if plan.stop_early else {}
    for task in tasks[:ROWS]:
        folder, price = lab.run(task.run), cost(task.spec)
        state = state_in_sweep(folder.state(), folder.name, before)
        prices = f"{price.speedup:.2f}x", f"{price.train_flops:.2e}"
        rows.append([folder.name, labels[folder.name], *prices, state])
    drop = ("run", "train FLOPs", "speed-up")
    out.print(fitted(heads, rows, drop=drop, width=out.width))
    if len(tasks) > ROWS:
        say(f"... and {len(tasks) - ROWS} more")
    for hole in plan.holes:
        examples = "; ".join(cell_text(cell) for cell in hole.examples[:2])
        say(f"{counted(hole.count, 'cell')} not planned: {_why(hole.reason)} (e.g. {examples})")
    for same in plan.duplicates:
        examples = "; ".join(cell_text(cell) for cell in same.examples[:2])
        count = counted(same.count, "cell")
        say(f"{count}: {same.reason}, so nothing runs twice (e.g. {examples})")
    samplings = setting_names([e for e in plan.evaluations if isinstance(e, SamplesSpec)])
    if len(samplings) > 2:
        say(f"every run is sampled {len(samplings)} ways: {'; '.join(samplings)}")
    of_known = ""
    if plan.search is not None:
        _say_search(plan, lab, say)
        of_known = " of runs that are certain"
    shape = _shape([task.spec for task in tasks or plan.possible_tasks])
    say(
        f"{counted(len(tasks), 'run')} of {plan.experiment}, {shape}:"
        f" {counted(baselines, 'baseline')}, {counted(len(plan.trials) - baselines, 'trial')}"
        + (f", {counted(plan.parents, 'parent')} to start from" if plan.parents else "")
    )
    say(f"{plan.train_flops:.2e} training FLOPs{of_known}; {_estimate(estimate, slots)}")


def show_evaluation_time(plan: Plan, outlook: Forecast, *, asked: bool = False) -> None:
    """What an evaluation of images consists of, where they are decoded or seen by Inception.

    Args:
        asked: the plan is what the command was asked for, and goes to stdout.
    """
    say = _say(answers if asked else notices)
    rates, tasks = outlook.rates, plan.tasks or plan.possible_tasks
    if rates is None or not tasks:
        return
    spec, said = tasks[0].spec, False
    for evaluation in plan.evaluations:
        parts = outlook.parts(spec, evaluation)
        if not isinstance(evaluation, SamplesSpec) or len(parts) == 1:
            continue
        once = outlook.references(spec, evaluation)
        say(
            f"{evaluation_label(encode(evaluation))} of one run: {_times(parts)}"
            + (f"; references once for the lab: {_times(once)}" if once else "")
        )
        said = True
    if said:
        say(f"rates of {rates.device}, {rates.source}")


def _times(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items())


def _shape(specs: Sequence[RunSpec]) -> str:
    """`DiT-12x32/2 on fashion16, 125 to 1000 steps of 16`, for the specs of a plan."""
    models = sorted(model.name for model in {spec.model for spec in specs})
    model = models[0] if len(models) == 1 else f"{len(models)} models"
    data = ", ".join(sorted({spec.data.source for spec in specs}))
    steps = _span({spec.train.steps for spec in specs})
    return f"{model} on {data}, {steps} steps of {_span({spec.train.batch for spec in specs})}"


def _span(numbers: Collection[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"


def _why(reason: str) -> str:
    """Why cells are left out; a `where` says what it keeps."""
    kind, _, expression = reason.partition(": ")
    return f"`where` keeps only {expression}" if kind == "where" else reason


def _say(out: Console) -> Say:
    """What prints one line on a console."""
    return lambda text: out.print(text, markup=False)


def show_budget(
    plan: Plan, budget: Budget, coming: Sequence[Task], slots: int, *, asked: bool = False
) -> None:
    """What the budget is, what of it is spent, and what will not fit in."""
    say = _say(answers if asked else notices)
    limits, before = budget.spec, budget.before
    parts = []
    if limits.flops is not None:
        parts.append(f"{limits.flops:.2e} training FLOPs ({before.flops:.2e} spent)")
    if limits.hours is not None:
        parts.append(f"{limits.hours:g} h ({before.hours:.2g} h spent)")
    if limits.trials is not None:
        parts.append(f"{counted(limits.trials, 'trial')} ({before.trials} started)")
    fitting, left = budget.split(coming, slots)
    say(f"budget: {', '.join(parts)}: {len(fitting)} of {len(coming)} open runs fit")
    if left and plan.search is None:
        labels = run_labels(plan.trials)
        named = "; ".join(labels[task.run] for task in left[:_NAMED])
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        say(f"not started, in the order of the plan: {named}{more}")
    elif left:
        say(f"the search ends about {counted(len(left), 'run')} early")


def _say_search(plan: Plan, lab: Lab, say: Say) -> None:
    """How large the space is, how much of it is tried, and what that costs."""
    assert plan.search is not None
    found, spec = search_forecast(plan, lab), plan.search.spec
    seeds = sum(t.role == "trial" for t in plan.search.trials_of(plan.search.cells[0]))
    begun = f", {found.suggested} of them asked for" if found.suggested else ""
    runs = "run" if seeds == 1 else "runs"
    say(
        f"search by {spec.sampler}: {found.trials} of {found.cells} cells{begun}, {seeds} {runs}"
        f" each, for {' and '.join(plan.search.objectives)}; {spec.parallel} at once,"
        f" {'the same trials come again' if spec.in_order else 'results in order of arrival'}"
    )
    if found.suggested < found.trials:
        still = counted(found.trials - found.suggested, "trial")
        say(
            f"{still} to ask for: {found.mean_flops:.2e} training"
            f" FLOPs at the mean of the space, {found.worst_flops:.2e} at worst"
        )


def _estimate(estimate: RemainingTime, slots: int) -> str:
    if estimate.open_runs == 0:
        return "everything is done"
    runs = f"{counted(estimate.open_runs, 'run')} open, {slots} at once"
    if estimate.seconds is None:
        return f"{runs}; time not predicted (a trial step would take long on this device)"
    rates = f" at the stated rates of {estimate.source}" if estimate.source else ""
    return f"{runs}: about {duration(estimate.seconds)}{rates}"
