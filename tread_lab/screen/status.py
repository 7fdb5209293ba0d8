"""Where sweeps and runs stand, once or again and again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from tread_lab.records import stopped_early
from tread_lab.records.lab import Lab, RunFolder
from tread_lab.records.plan import Tree
from tread_lab.records.provenance import provenance_differences, provenances_of
from tread_lab.records.run_status import RunStatus, count_states, run_status
from tread_lab.records.status import RunState, without_comparison
from tread_lab.screen.console import ROWS, answer, answers, fitted, say, show_pairs
from tread_lab.specs.labels import run_label, run_labels
from tread_lab.specs.units import counted, counts_text, duration

_EVERY = 2.0  # seconds between two looks
_URGENT = (  # the states in the order in which runs are shown where there is no room for all
    RunState.RUNNING,
    RunState.FAILED,
    RunState.DIVERGED,
    RunState.INTERRUPTED,
    RunState.PENDING,
    RunState.STOPPED,
    RunState.COMPLETED,
)


def show_lab(lab: Lab, *, as_json: bool) -> None:
    """Every sweep with its states."""
    rows = {name: _counted(lab, name, lab.sweep(name).plan().runs()) for name in lab.sweeps()}
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")
        return
    texts = [[name, str(sum(s.values())), counts_text(s)] for name, s in rows.items()]
    answers.print(fitted(("sweep", "runs", "states"), texts, drop=["runs"], width=answers.width))


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """The runs of a sweep and where they stand."""
    plan = lab.sweep(name).plan()
    runs = plan.runs()
    if as_json:
        before = stopped_early.read(lab.sweep(name).stopped_path)
        labels = run_labels(plan.trials)
        rows = [{"label": labels[r], **run_status(lab.run(r), before).tree()} for r in runs]
        print(json.dumps(rows, indent=1))
        return
    answer(f"{name}: {counts_text(_counted(lab, name, runs))}")
    answers.print(_table(lab, name, runs))
    if len(runs) > ROWS:
        answer(f"... and {len(runs) - ROWS} more")
    for line in _alone(lab, name):
        answer(line)
    for difference in provenance_differences(provenances_of(lab, runs)):
        answer(f"not one comparison: {difference}")


def watch_sweep(lab: Lab, name: str) -> None:
    """The same until every run has ended: a live table, or a line at every change in a log."""
    if not answers.is_terminal:
        said = _changes(name)
        _until_ended(lab, name, lambda runs, states: said(states))
        return
    with Live(console=answers, refresh_per_second=4) as live:
        _until_ended(lab, name, lambda runs, states: live.update(_page(lab, name, runs, states)))


def _counted(lab: Lab, name: str, runs: Mapping[str, Tree]) -> Counter[RunState]:
    return count_states(lab, runs, stopped_early.read(lab.sweep(name).stopped_path))


def _until_ended(
    lab: Lab, name: str, show: Callable[[Mapping[str, Tree], Counter[RunState]], None]
) -> None:
    folder = lab.sweep(name)
    while True:
        runs = folder.plan().runs()  # of a search, further ones are asked for as it goes
        states = _counted(lab, name, runs)
        show(runs, states)
        if all(state.ended for state in states) and not folder.driven:
            return
        time.sleep(_EVERY)


def _changes(name: str) -> Callable[[Counter[RunState]], None]:
    """Says the states whenever they are others than before."""
    said: list[str] = []

    def show(states: Counter[RunState]) -> None:
        text = f"{name}: {counts_text(states)}"
        if said[-1:] != [text]:
            said.append(text)
            answer(text)

    return show


def _page(
    lab: Lab, name: str, runs: Mapping[str, Tree], states: Counter[RunState]
) -> RenderableType:
    table = _table(lab, name, runs, most=max(answers.height - 6, 5))
    table.title, table.title_justify = f"{name}: {counts_text(states)}", "left"
    return table


def _table(lab: Lab, name: str, runs: Mapping[str, Tree], most: int = ROWS) -> Table:
    """A row a run, as many as there is room for; what has to be looked at comes first then."""
    before = stopped_early.read(lab.sweep(name).stopped_path)
    found = [run_status(lab.run(run), before) for run in list(runs)[: 4 * most]]
    if len(found) > most:
        found.sort(key=lambda status: _URGENT.index(status.state))
    labels = run_labels(lab.sweep(name).plan().trials)
    heads = ("run", "trial", "state", "step", "attempts", "last progress", "why")
    rows = [
        _row(stands, labels[stands.run], runs[stands.run]["train"]["steps"])
        for stands in found[:most]
    ]
    drop = ("attempts", "last progress", "run", "why", "step")
    return fitted(heads, rows, drop=drop, width=answers.width)


def _alone(lab: Lab, name: str) -> list[str]:
    """A line for every baseline that ended without a result: its trials are compared with none."""
    plan, before = lab.sweep(name).plan(), stopped_early.read(lab.sweep(name).stopped_path)
    labels = run_labels(plan.trials)
    states = {run: run_status(lab.run(run), before).state for run in plan.baselines}
    return [
        without_comparison(labels[r], state) for r, state in states.items() if state.lacks_result
    ]


def _row(stands: RunStatus, label: str, steps: int) -> list[str]:
    moved = f"{duration(max(time.time() - stands.moved, 0))} ago" if stands.moved else ""
    why = ": ".join(part for part in (stands.kind, stands.reason) if part)
    step = f"{stands.step}/{steps}"
    tries = str(len(stands.attempts) or "")
    return [stands.run, label, stands.state, step, tries, moved, why[:90]]


def show_unfinished(lab: Lab, name: str) -> bool:
    """Say which runs of a sweep failed or lack measurements, and what to do; whether any does."""
    from tread_lab.sweep.plan.storage import load_plan
    from tread_lab.sweep.trial.task import is_complete

    tasks = load_plan(lab.sweep(name)).tasks
    failed = [s for t in tasks if (s := run_status(lab.run(t.run))).state is RunState.FAILED]
    ended = [task for task in tasks if lab.run(task.run).result() is not None]
    lacking = [lab.run(task.run) for task in ended if not is_complete(lab, task)]
    if failed:
        kinds = counts_text(Counter(stands.kind for stands in failed))
        say(f"{counted(len(failed), 'run')} failed ({kinds}); --retry-failed runs them again")
    if lacking:
        why = next((s.reason for f in lacking if (s := run_status(f)).reason), "")
        count = counted(len(lacking), "run")
        say(f"measurements lack in {count} ({why}); `tread-lab evaluate {name}` adds them")
    return bool(failed or lacking)


def show_run(folder: RunFolder, *, as_json: bool = False) -> None:
    """One run: what it is, where it stands, its attempts, what was measured."""
    spec, result, stands = folder.spec(), folder.result() or {}, run_status(folder)
    measured = [e.read() or {} for e in folder.evaluations()]
    if as_json:
        metrics = [e.get("metrics", {}) for e in measured]
        print(json.dumps({**stands.tree(), "result": result, "metrics": metrics}, indent=1))
        return
    pairs = [("run", f"{folder.name} ({run_label(spec)})"), ("state", stands.state)]
    pairs += [("kind", stands.kind)] if stands.kind else []
    pairs += [("reason", stands.reason)] if stands.reason else []
    pairs.append(("step", f"{stands.step}/{spec.train.steps}"))
    for attempt in stands.attempts if len(stands.attempts) > 1 else ():
        why = f": {attempt.reason.splitlines()[0]}" if attempt.reason else ""
        where = f"process {attempt.pid} on {attempt.host}"
        pairs.append((f"attempt {attempt.n}", f"{attempt.ended or 'under way'}, {where}{why}"))
    made = {folder.name: [attempt.made_with for attempt in stands.attempts]}
    pairs += [("mixed", str(difference)) for difference in provenance_differences(made)]
    pairs += [(k, f"{v:.6g}") for e in measured for k, v in e.get("metrics", {}).items()]
    pairs += [(k, f"{v:.6g}") for k, v in result.get("metrics", {}).items()]
    show_pairs([*pairs, ("folder", str(folder.path))])
