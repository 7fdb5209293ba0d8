"""The states of sweeps and runs, shown once or until all runs have ended."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rich.live import Live
from rich.table import Table

from tread_lab.records.history import left_cells, left_note
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import value_text
from tread_lab.records.plan import StoredPlan
from tread_lab.records.provenance import measured, mixtures, provenance_differences
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_status import RunStatus, run_states, run_status
from tread_lab.records.status import RunState, without_comparison
from tread_lab.records.sweep_folder import Judgement
from tread_lab.specs.cell import Tree
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import AT
from tread_lab.specs.evaluation_text import MetricNames
from tread_lab.specs.labels import run_label, run_labels
from tread_lab.specs.units import counted, counts_text, duration
from tread_lab.terminal.console import (
    ROWS,
    answer,
    answers,
    fitted,
    say,
    show_lines,
    show_pairs,
    shown_problems,
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


def show_lab(lab: Lab, *, as_json: bool) -> int:
    """Print every sweep with the number of its runs in each state; return the exit code."""
    problems: list[UserError] = []
    counts = lab.of_sweeps(lambda s: _SweepStatus.read(lab, s.name).counts, problems)
    if as_json:
        print(json.dumps(counts, indent=1))
        return shown_problems(problems)
    if not counts and not problems:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")
        return 0
    texts = [[name, str(sum(c.values())), counts_text(c)] for name, c in counts.items()]
    answers.print(fitted(("sweep", "runs", "states"), texts, drop=["runs"], width=answers.width))
    return shown_problems(problems)


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """Print the runs of a sweep with their states, and what makes the sweep no fair comparison."""
    sweep = _SweepStatus.read(lab, name)
    if as_json:
        rows = [{"label": sweep.labels[run], **sweep.status(run).tree()} for run in sweep.runs]
        print(json.dumps(rows, indent=1))
        return
    answer(sweep.headline())
    answers.print(sweep.table(ROWS))
    if len(sweep.runs) > ROWS:
        answer(f"... and {len(sweep.runs) - ROWS} more")
    show_lines(answers, sweep.lost_baselines())
    show_lines(answers, left_note(left_cells(lab, lab.sweep(name).plan())))
    show_lines(answers, mixtures(lab, sweep.runs))


def watch_sweep(lab: Lab, name: str) -> None:
    """Show a sweep until every run has ended: a live table, or in a log a line at every change."""
    if answers.is_terminal:
        with Live(console=answers, refresh_per_second=4) as live:
            for sweep in _until_ended(lab, name):
                table = sweep.table(max(answers.height - 6, 5))
                table.title, table.title_justify = sweep.headline(), "left"
                live.update(table)
        return
    last_headline = ""
    for sweep in _until_ended(lab, name):
        if sweep.headline() != last_headline:
            last_headline = sweep.headline()
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
    """A sweep's runs and the plan and early stops that were recorded when it was read."""

    lab: Lab
    plan: StoredPlan
    runs: Mapping[str, Tree]
    stopped: Mapping[str, Judgement]

    @staticmethod
    def read(lab: Lab, name: str) -> _SweepStatus:
        plan = lab.sweep(name).plan()
        return _SweepStatus(lab, plan, plan.runs(), lab.sweep(name).stopped())

    def status(self, run: str) -> RunStatus:
        return run_status(self.lab.run(run), self.stopped)

    @cached_property
    def states(self) -> dict[str, RunState]:
        return run_states(self.lab, self.runs, self.stopped)

    @property
    def counts(self) -> Counter[RunState]:
        return Counter(self.states.values())

    @cached_property
    def labels(self) -> dict[str, str]:
        return run_labels(self.plan.trials)

    def headline(self) -> str:
        """Return `route_placement: 3 completed, 1 failed`."""
        return f"{self.plan.name}: {counts_text(self.counts)}"

    def table(self, most: int) -> Table:
        """Return a row per run, at most `most`; if not all fit, in the order of `_URGENT`."""
        runs = list(self.runs)
        if len(runs) > most:
            runs.sort(key=lambda run: _URGENT.index(self.states[run]))
        heads = ("run", "trial", "state", "step", "attempts", "last progress", "why")
        rows = [
            _row(self.status(run), self.labels[run], self.runs[run]["train"]["steps"])
            for run in runs[:most]
        ]
        drop = ("attempts", "last progress", "run", "why", "step")
        return fitted(heads, rows, drop=drop, width=answers.width)

    def lost_baselines(self) -> Iterator[str]:
        """Yield a line for every baseline that ended without a result to compare with."""
        for run in self.plan.baselines:
            if self.states[run].lacks_result:
                yield without_comparison(self.labels[run], self.states[run])


def _row(status: RunStatus, label: str, steps: int) -> list[str]:
    progress = f"{duration(time.time() - status.moved)} ago" if status.moved else ""
    why = ": ".join(part for part in (status.kind, status.reason) if part)
    step, attempts = f"{status.step}/{steps}", str(len(status.attempts) or "")
    return [status.run, label, status.state, step, attempts, progress, why[:90]]


def show_unfinished(lab: Lab, name: str, *, whole: Collection[str] = ()) -> bool:
    """Say how many runs failed or lack measurements, and what to do; return whether any does.

    Args:
        whole: runs that are known to lack nothing.
    """
    from tread_lab.sweep.plan.storage import load_plan
    from tread_lab.sweep.task import is_complete

    tasks = load_plan(lab.sweep(name)).tasks
    folders = [lab.run(task.run) for task in tasks]
    failed = [run_status(f) for f in folders if f.state() is RunState.FAILED]
    checked = [task for task in tasks if task.run not in whole]
    ended = [task for task in checked if lab.run(task.run).result() is not None]
    lacking = [lab.run(task.run) for task in ended if not is_complete(lab, task)]
    if failed:
        kinds = counts_text(Counter(status.kind for status in failed))
        say(f"{counted(len(failed), 'run')} failed ({kinds}); --retry-failed runs them again")
    if lacking:
        why = next((s.reason for f in lacking if (s := run_status(f)).reason), "")
        lack = "1 run lacks" if len(lacking) == 1 else f"{len(lacking):,} runs lack"
        why = f" ({why})" if why else ""
        say(f"{lack} measurements{why}; `tread-lab evaluate {name}` adds them")
    return bool(failed or lacking)


def show_run(folder: RunFolder, *, as_json: bool = False) -> None:
    """Print one run: its label, state, attempts and metrics."""
    spec, result, status = folder.spec(), folder.result() or {}, run_status(folder)
    evaluated = [*_evaluated(folder)]
    if as_json:
        metrics = [{**values, **step} for values, step in evaluated]
        tree = {**status.tree(), "result": result, "metrics": metrics}
        print(json.dumps(tree, indent=1))
        return
    pairs = [("run", f"{folder.name} ({run_label(spec)})"), ("state", status.state)]
    pairs += [("kind", status.kind)] if status.kind else []
    pairs += [("reason", status.reason)] if status.reason else []
    pairs.append(("step", f"{status.step}/{spec.train.steps}"))
    for attempt in status.attempts if len(status.attempts) > 1 else ():
        why = f": {attempt.reason.splitlines()[0]}" if attempt.reason else ""
        where = f"process {attempt.pid} on {attempt.host}"
        pairs.append((f"attempt {attempt.n}", f"{attempt.ended or 'under way'}, {where}{why}"))
    provenances = {
        folder.name: [*(attempt.fingerprint for attempt in status.attempts), *measured(folder)]
    }
    pairs += [("mixed", str(difference)) for difference in provenance_differences(provenances)]
    for values, step in evaluated:
        at = "".join(f" {AT} {at}" for at in step.values())
        pairs += [(f"{name}{at}", value_text(name, value)) for name, value in values.items()]
    pairs += [(k, value_text(k, v)) for k, v in result.get("metrics", {}).items()]
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
