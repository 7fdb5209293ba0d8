"""The states of sweeps and runs, shown once or until all runs have ended."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.live import Live
from rich.table import Table

from tread_lab.records.history import left_cells, left_note
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import metric_kind, value_text
from tread_lab.records.plan import StoredPlan
from tread_lab.records.provenance import mixtures
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_status import RunStatus, run_states, run_status
from tread_lab.records.status import RunState, without_comparison
from tread_lab.records.sweep_folder import Judgement
from tread_lab.specs.evaluation import AT
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.specs.labels import run_label, run_labels
from tread_lab.specs.units import counted, counts_text, duration, quantity
from tread_lab.terminal.console import (
    ROWS,
    answer,
    answers,
    say,
    show_lines,
    show_pairs,
    table,
)

_EVERY = 2.0  # seconds between two readings of the records
_URGENT = (  # the order of states in which runs are shown if there is no room for all
    RunState.RUNNING,
    RunState.FAILED,
    RunState.DIVERGED,
    RunState.INTERRUPTED,
    RunState.PENDING,
    RunState.STOPPED,
    RunState.COMPLETED,
)


def show_lab(lab: Lab, *, as_json: bool) -> None:
    """Print every sweep with the number of its runs in each state."""
    counts = {name: _SweepStatus.read(lab, name).counts for name in lab.sweeps()}
    if as_json:
        print(json.dumps(counts, indent=1))
    elif counts:
        rows = ([name, str(sum(c.values())), counts_text(c)] for name, c in counts.items())
        answers.print(table(("sweep", "runs", "states"), rows))
    else:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """Print the runs of a sweep with their states, and what makes the sweep no fair comparison."""
    sweep = _SweepStatus.read(lab, name)
    if as_json:
        rows = [{"label": label, **vars(sweep.status(run))} for run, label in sweep.labels.items()]
        print(json.dumps(rows, indent=1, default=vars))
        return
    answer(sweep.headline)
    answers.print(sweep.table(ROWS))
    if len(sweep.states) > ROWS:
        answer(f"... and {len(sweep.states) - ROWS} more")
    for run in sweep.plan.baselines:
        if sweep.states[run].lacks_result:
            answer(without_comparison(sweep.labels[run], sweep.states[run]))
    left = left_note(left_cells(lab, lab.sweep(name).plan()))
    show_lines(answers, [*left, *mixtures(lab, sweep.states)])


def watch_sweep(lab: Lab, name: str) -> None:
    """Show a sweep until every run has ended: a live table, or in a log a line at every change."""
    last_headline = ""
    with Live(console=answers, auto_refresh=False) as live:
        for sweep in _until_ended(lab, name):
            if answers.is_terminal:
                shown = sweep.table(max(answers.height - 6, 5))
                shown.title, shown.title_justify = sweep.headline, "left"
                live.update(shown, refresh=True)
            elif sweep.headline != last_headline:
                last_headline = sweep.headline
                answer(last_headline)


def _until_ended(lab: Lab, name: str) -> Iterator[_SweepStatus]:
    """Yield the status of a sweep every two seconds, at last when all runs have ended."""
    while True:
        sweep = _SweepStatus.read(lab, name)  # a search adds trials to its plan as it goes
        yield sweep
        if all(state.ended for state in sweep.counts) and not lab.sweep(name).driven:
            return
        time.sleep(_EVERY)


@dataclass(frozen=True)
class _SweepStatus:
    """A sweep's plan, its early stops, and the states and labels of its runs when it was read."""

    lab: Lab
    plan: StoredPlan
    stopped: dict[str, Judgement]
    states: dict[str, RunState]
    labels: dict[str, str]

    @staticmethod
    def read(lab: Lab, name: str) -> _SweepStatus:
        folder = lab.sweep(name)
        plan, stopped = folder.plan(), folder.stopped()
        states = run_states(lab, plan.runs(), stopped)
        return _SweepStatus(lab, plan, stopped, states, run_labels(plan.trials))

    def status(self, run: str) -> RunStatus:
        return run_status(self.lab.run(run), self.stopped)

    @property
    def counts(self) -> Counter[RunState]:
        return Counter(self.states.values())

    @property
    def headline(self) -> str:
        """The counts, as `route_placement: 3 completed, 1 failed`."""
        return f"{self.plan.name}: {counts_text(self.counts)}"

    def table(self, most: int) -> Table:
        """Return a row per run, at most `most`; if not all fit, in the order of `_URGENT`."""
        runs, specs = list(self.states), self.plan.runs()
        if len(runs) > most:
            runs.sort(key=lambda run: _URGENT.index(self.states[run]))
        rows = (
            _row(self.status(run), self.labels[run], specs[run]["train"]["steps"])
            for run in runs[:most]
        )
        return table(("run", "cell", "state", "step", "last progress", "why"), rows)


def _row(status: RunStatus, label: str, steps: int) -> list[str]:
    progress = f"{duration(time.time() - status.moved)} ago" if status.moved else ""
    why = ": ".join(part for part in (status.kind, status.reason) if part)[:90]
    return [status.run, label, status.state, f"{status.step}/{steps}", progress, why]


def show_unfinished(lab: Lab, name: str) -> bool:
    """Say how many runs failed or lack measurements, and what to do; return whether any does."""
    from tread_lab.sweep.plan.storage import load_plan
    from tread_lab.sweep.task import failed, is_complete

    tasks = load_plan(lab.sweep(name)).tasks
    lost = [run_status(lab.run(task.run)).kind for task in failed(lab, tasks)]
    ended = (task for task in tasks if lab.run(task.run).state().measurable)
    lacking = [run_status(lab.run(t.run)).reason for t in ended if not is_complete(lab, t)]
    if lost:
        kinds = counts_text(Counter(lost))
        say(f"{counted(len(lost), 'run')} failed ({kinds}); --retry-failed runs them again")
    if lacking:
        why = next((f" ({reason})" for reason in lacking if reason), "")
        say(
            f"measurements missing: {counted(len(lacking), 'run')}{why}; `tread-lab evaluate"
            f" {name}` adds them"
        )
    return bool(lost or lacking)


def show_run(folder: RunFolder, *, as_json: bool = False) -> None:
    """Print one run: its label, state, attempts and metrics."""
    spec, result, status = folder.spec(), folder.result() or {}, run_status(folder)
    evaluated = [*_evaluated(folder)]
    if as_json:
        metrics = [{**values, **step} for values, step in evaluated]
        tree = {**vars(status), "result": result, "metrics": metrics}
        print(json.dumps(tree, indent=1, default=vars))
        return
    pairs = [("run", f"{folder.name} ({run_label(spec)})"), ("state", status.state)]
    pairs += [(name, text) for name in ("kind", "reason") if (text := getattr(status, name))]
    pairs.append(("step", f"{status.step}/{spec.train.steps}"))
    for attempt in status.attempts if len(status.attempts) > 1 else ():
        why = f": {attempt.reason.splitlines()[0]}" if attempt.reason else ""
        where = f"process {attempt.pid} on {attempt.host}"
        pairs.append((f"attempt {attempt.n}", f"{attempt.ended or 'under way'}, {where}{why}"))
    pairs += [("mixed", line) for line in mixtures(Lab(folder.path.parent.parent), [folder.name])]
    for values, step in evaluated:
        at = "".join(f" {AT} {at}" for at in step.values())
        pairs += [(f"{name}{at}", _number(name, value)) for name, value in values.items()]
    pairs += [(k, _number(k, v)) for k, v in result.get("metrics", {}).items()]
    show_pairs([*pairs, ("folder", str(folder.path))])


def _evaluated(folder: RunFolder) -> Iterator[tuple[dict[str, float], dict[str, int]]]:
    """Yield the metrics of each evaluation by name, and `{step: 250}`, empty for the end."""
    names = MetricNames(folder.evaluation_defaults())
    for evaluation in folder.evaluations():
        if (tree := evaluation.read()) is None:
            continue
        spec, own = tree["spec"], evaluation.path.name
        values = {names.name(k, own, spec): v for k, v in tree["metrics"].items()}
        yield values, {} if spec.get("step") is None else {"step": int(spec["step"])}


def _number(metric: str, value: float) -> str:
    unit = metric_kind(metric).unit
    return quantity(value, unit) if unit else value_text(metric, value)
