"""The states of sweeps and runs, shown once or until all runs have ended."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from rich.live import Live
from rich.table import Table

from tread_lab.cli.console import (
    ROWS,
    answers,
    say,
    show_pairs,
    table,
)
from tread_lab.config.evaluation import AT
from tread_lab.config.labels import MetricNames, run_label, run_labels
from tread_lab.config.units import counted, counts_text, duration
from tread_lab.records.caveats import left_cells, left_note, mixtures
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab, run_states, run_status
from tread_lab.records.metric_names import value_text
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState, without_comparison

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
    counts = {name: Counter(_states(lab, name).values()) for name in lab.sweeps()}
    if as_json:
        print(json.dumps(counts, indent=1))
    elif counts:
        rows = ([name, str(sum(c.values())), counts_text(c)] for name, c in counts.items())
        answers.print(table(("sweep", "runs", "states"), rows))
    else:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """Print the runs of a sweep with their states, and caveats of their comparison."""
    states, folder = _states(lab, name), lab.sweep(name)
    plan = folder.plan()
    stopped = stopped_early(lab, plan)
    labels = run_labels(plan.trials)
    if as_json:
        found = ({"label": labels[r], **vars(run_status(lab.run(r), stopped))} for r in states)
        print(json.dumps([*found], indent=1, default=vars))
        return
    print(_headline(name, states))
    answers.print(_runs_table(lab, name, states, ROWS))
    if len(states) > ROWS:
        print(f"... and {len(states) - ROWS} more")
    lost = [run for run in plan.baselines if states[run].lacks_result]
    lines = [without_comparison(labels[run], states[run]) for run in lost]
    lines += [*left_note(left_cells(lab, plan)), *mixtures(lab, states)]
    print(*lines, sep="\n", end="\n" * bool(lines))


def watch_sweep(lab: Lab, name: str) -> None:
    """Show a sweep until every run has ended: a live table, or a log line per change."""
    headline, driven = "", True
    with Live(console=answers, auto_refresh=False) as live:
        while driven:
            states = _states(lab, name)  # a search adds runs to its plan as it goes
            driven = not all(s.ended for s in states.values()) or lab.sweep(name).driven
            if answers.is_terminal:
                shown = _runs_table(lab, name, states, max(answers.height - 6, 5))
                shown.title, shown.title_justify = _headline(name, states), "left"
                live.update(shown, refresh=True)
            elif _headline(name, states) != headline:
                headline = _headline(name, states)
                print(headline)
            time.sleep(_EVERY * driven)


def _states(lab: Lab, name: str) -> dict[str, RunState]:
    """Return the state of each run of a sweep, as the sweep sees it."""
    plan = lab.sweep(name).plan()
    return run_states(lab, plan.runs(), stopped_early(lab, plan))


def _headline(name: str, states: Mapping[str, RunState]) -> str:
    """Return `route_placement: 3 completed, 1 failed`."""
    return f"{name}: {counts_text(Counter(states.values()))}"


def _runs_table(lab: Lab, name: str, states: Mapping[str, RunState], most: int) -> Table:
    """Return a row per run, at most `most`; if not all fit, in the order of `_URGENT`."""
    plan, runs = lab.sweep(name).plan(), list(states)
    stopped, labels, rows = stopped_early(lab, plan), run_labels(plan.trials), []
    specs = plan.runs()
    if len(runs) > most:
        runs.sort(key=lambda run: _URGENT.index(states[run]))
    for run in runs[:most]:
        status, steps = run_status(lab.run(run), stopped), specs[run]["train"]["steps"]
        progress = f"{duration(time.time() - status.moved)} ago" if status.moved else ""
        why = ": ".join(part for part in (status.kind, status.reason) if part)[:90]
        rows.append((run, labels[run], status.state, f"{status.step}/{steps}", progress, why))
    return table(("run", "cell", "state", "step", "last progress", "why"), rows)


def show_unfinished(lab: Lab, name: str) -> bool:
    """Print how many runs failed or lack evaluations, with remedies; return whether any does."""
    from tread_lab.sweep.plan import load_plan
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
            f"missing evaluations: {counted(len(lacking), 'run')}{why}; add them with `tread-lab"
            f" evaluate {name}`"
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
