"""Where sweeps and runs stand."""

from __future__ import annotations

import json
from collections import Counter

from rich.table import Table

from tread_lab.records import names
from tread_lab.records.layout import Lab, RunFolder
from tread_lab.screen.console import ROWS, out, say, show_pairs
from tread_lab.screen.words import counts_text, run_label
from tread_lab.sweep.plan import Plan, load_plan


def show_lab(lab: Lab, *, as_json: bool) -> None:
    """Every sweep with its states."""
    rows = {name: _states(lab, load_plan(lab.sweep(name))) for name in lab.sweeps()}
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        say(f"no sweep in {lab.root}; try `tread-lab sweep route_placement.yaml --plan`")
        return
    table = Table("sweep", "runs", "states", box=None)
    for name, states in rows.items():
        table.add_row(name, str(sum(states.values())), counts_text(states))
    out.print(table)


def show_sweep(lab: Lab, name: str, *, as_json: bool) -> None:
    """The runs of a sweep and where they stand."""
    plan = load_plan(lab.sweep(name))
    states = {task: lab.run_of(task.spec) for task in plan.tasks}
    if as_json:
        rows = [{"run": f.name, "state": f.state(), "step": _step(f)} for f in states.values()]
        print(json.dumps(rows, indent=1))
        return
    say(f"{name}: {counts_text(_states(lab, plan))}")
    table = Table("run", "route", "rate", "seed", "state", "step", box=None)
    for task, folder in list(states.items())[:ROWS]:
        about, steps = names.parameters(task.spec), task.spec.train.steps
        row = [str(about[key]) for key in ("route", "selection_rate", "seed")]
        table.add_row(folder.name, *row, folder.state(), f"{_step(folder)}/{steps}")
    out.print(table)
    if len(states) > ROWS:
        say(f"... and {len(states) - ROWS} more")


def show_run(folder: RunFolder, *, as_json: bool = False) -> None:
    """One run: what it is, where it stands, what was measured."""
    spec, result = folder.spec(), folder.result() or {}
    measured = [e.read() or {} for e in folder.evaluations()]
    if as_json:
        metrics = [e.get("metrics", {}) for e in measured]
        tree = {"run": folder.name, "state": folder.state(), "result": result, "metrics": metrics}
        print(json.dumps(tree, indent=1))
        return
    pairs = [("run", f"{folder.name} ({run_label(spec)})"), ("state", folder.state())]
    pairs += [("reason", result["reason"])] if "reason" in result else []
    pairs.append(("step", f"{_step(folder)}/{spec.train.steps}"))
    pairs += [(k, f"{v:.6g}") for e in measured for k, v in e.get("metrics", {}).items()]
    pairs += [(k, f"{v:.6g}") for k, v in result.get("metrics", {}).items()]
    show_pairs([*pairs, ("folder", str(folder.path))])


def _states(lab: Lab, plan: Plan) -> Counter[str]:
    return Counter(lab.run_of(task.spec).state() for task in plan.tasks)


def _step(folder: RunFolder) -> int:
    result = folder.result()
    if result is not None and "step" in result:
        return int(result["step"])
    entries = folder.entries()
    return entries[-1].step if entries else 0
