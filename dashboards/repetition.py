"""How to run a sweep again: one complete sweep file from its plan, and what it was run with."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace
from typing import Any

import yaml

from tread_lab.config.decode import decode
from tread_lab.config.errors import UserError
from tread_lab.config.fields import dotted, run_of
from tread_lab.config.labels import ROUTE_AXES
from tread_lab.config.load import load_experiment
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.sweep import SPEND
from tread_lab.config.units import counted
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_folder import StoredPlan

NOT_TYPED = (*ROUTE_AXES, SPEND)  # axes that routes and steps say


def repetition(lab: Lab, plan: StoredPlan, best: str = "", *, done: bool = True) -> dict[str, Any]:
    """Return instructions to repeat a sweep with best run `best`: `winner` (commands that use it),
    `how` in words, `commands`, `file` (complete), `data` and `setups`.

    Args:
        done: whether every run has ended.
    """
    name = plan.name
    run = best or plan.trials[-1].run
    how = f"Elsewhere, install the same commit and save the file below as {name}.yaml."
    commands = (f"tread-lab sweep {name}.yaml --name {name}", f"tread-lab report {name}")
    if not plan.sources:
        how = "The sweep file was not recorded; each run can be repeated from its own spec."
        commands = (f"sed /^format:/d runs/{run}/spec.yaml > run.yaml", "tread-lab train run.yaml")
    again = "" if done else "To continue the sweep, repeat its command in this lab. "
    return {
        "winner": winner(plan, best),
        "how": again + how,
        "commands": commands,
        "file": sweep_file(plan) if plan.sources else "",
        "data": _data_text(plan),
        "setups": _setups(lab, plan),
    }


def winner(plan: StoredPlan, run: str) -> str:
    """Return the commands that retrain a cell, where they give its spec, and export its weights."""
    trial = next((trial for trial in plan.trials if trial.run == run), None)
    if trial is None:
        return ""
    export = f"tread-lab export {run} weights"
    routes = [RouteSpec(**route) for route in trial.spec["routes"]]
    settings = {**dict(dotted(plan.sweep_file.get("fixed") or {})), **trial.cell}
    settings |= {"seed": trial.seed} | ({"train.steps": trial.steps} if plan.match else {})
    words = [f"routes=[{', '.join(map(str, routes))}]", *(f"rate={r.rate}" for r in routes[:1])]
    words += [f"{name}={value}" for name, value in settings.items() if name not in NOT_TYPED]
    own = decode(RunSpec, trial.spec)
    try:
        made = run_of(load_experiment(plan.experiment, words).run)
    except UserError:
        return export
    if replace(made, data=own.data, execution=own.execution) != own:
        return export
    return f"{shlex.join(['tread-lab', 'train', plan.experiment, *words])}\n{export}"


def sweep_file(plan: StoredPlan) -> str:
    """Return the sweep as one YAML file that writes out every field of its base run.

    `tread-lab sweep FILE` gives the same signatures, even if the shipped experiment has changed.
    """
    said = {name: plan.base[name] for name in ("sampler", "reference") if plan.base.get(name)}
    file = {
        **plan.sweep_file,
        "experiment": {**plan.base.get("run", {}), **said},
        "evaluate": plan.evaluations_as_written,
        "sampler_axes": None,  # every evaluation is written
    }
    file = {k: v for k, v in file.items() if k == "baseline" or v not in (None, {}, [], "")}
    ordered = {k: file[k] for k in ("question", "experiment", *file) if k in file}
    copied = json.loads(json.dumps(ordered))  # equal parts would become anchors
    return yaml.safe_dump(copied, sort_keys=False, default_flow_style=None, width=96)


def _data_text(plan: StoredPlan) -> str:
    """Return `The data set fashion16 comes with tread-lab.`, or where the data were."""
    keys = ("source", "path", "digest")
    found = {tuple(str(trial.spec["data"].get(key) or "") for key in keys) for trial in plan.trials}
    texts = [
        f"The data were in {path}" + (f" (digest {digest[:12]})." if digest else ".")
        if path
        else f"The data set {source} comes with tread-lab."
        for source, path, digest in sorted(found)
    ]
    return " ".join(texts)


def _setups(lab: Lab, plan: StoredPlan) -> list[str]:
    """Return what runs were trained with, the commonest first: `9 runs: commit ab, Python 3.11`."""
    counts: Counter[str] = Counter()
    for run in plan.runs():
        made = [[a.get(key) for key in ("code", "python", "device")] for a in lab.run(run).origin()]
        counts.update({"commit {}, Python {}, {}".format(*facts) for facts in made})
    return [f"{counted(count, 'run')}: {text}" for text, count in counts.most_common()]
