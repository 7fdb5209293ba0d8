"""One cell of a sweep for the dashboard: numbers, curves, samples, similarity, differences."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import yaml

from tread_lab.analysis.figures.samples import how_drawn
from tread_lab.analysis.figures.similarity import common_evaluation, read_similarity
from tread_lab.analysis.report.page import typeset
from tread_lab.dashboards.cell_map import Tree, numbers, settled
from tread_lab.dashboards.views import choices
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    cells_frame,
    delta_column,
    disturbed,
    metric_number,
    over_text,
)
from tread_lab.records.attempts import SENTENCES
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import TRAIN_LOSS, metric_kind
from tread_lab.records.plan import StoredPlan
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_status import run_status
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.errors import UserError
from tread_lab.specs.fields import dotted
from tread_lab.specs.routes import RouteSpec

POINTS = 400  # of a curve; longer ones are thinned out
ENDED_BADLY = ("failed", "diverged", "stopped", "interrupted")
ADVICE = {  # kind of failure, or state -> what to do
    "oom": "Lower execution.micro_batch, which keeps the run, then `{again}`.",
    "parent": "See why the run that it starts from failed; `{again} --retry-failed` runs both.",
    "failed": "Mend what the traceback names, then `{again} --retry-failed` runs it again.",
    "diverged": "It is a result, so it is not run again. Try a lower train.lr in another cell.",
    "early": "It was worse than others at the same step. `stop_early: null` lets all go on.",
    "stopped": "Somebody asked it to stop: `{again}` continues from its last checkpoint.",
    "interrupted": "`{again}` continues from its last checkpoint.",
}
NOT_TOLD = ("seed", "execution.")  # fields of a spec that are no difference between cells


def cell(
    lab: Lab,
    plan: StoredPlan,
    frame: pd.DataFrame,
    number: int,
    seed: int | None = None,
) -> Tree:
    """Return the cell with this number in `cells`, seen through one of its seeds.

    Raises:
        UserError: there is no such cell.
    """
    rows = cells_frame(settled(frame))
    if not 0 <= number < len(rows):
        raise UserError(f"no cell {number}; the sweep has {len(rows)}")
    role, label = rows["role"].iloc[number], rows["cell"].iloc[number]
    trials = frame[(frame["role"] == role) & (frame["cell"] == label)]
    seeds = [int(s) for s in trials["seed"]]
    trial = trials.iloc[seeds.index(seed) if seed in seeds else 0]
    specs = {stored.run: stored.spec for stored in plan.trials}
    run, baseline = str(trial["run"]), trial["baseline"]
    known = isinstance(baseline, str) and baseline in specs
    losses = frame.drop_duplicates("run").set_index("run").get("loss")  # none before it was read
    runs = [run, *([str(baseline)] if known else [])]
    spec = specs[run]
    matrix = common_evaluation(map(lab.run, runs), plan.planned)
    return {
        "number": number,
        "role": role,
        "cell": label,
        "seed": int(trial["seed"]),
        "seeds": seeds,
        "state": str(trial["state"]),
        "states": list(trials["state"]),
        "reason": str(trial["reason"]),
        "ended": ending(lab.run(run), lab.sweep(plan.name)),
        "metrics": _metrics(frame, trial),
        "run": _run(lab.run(run), spec, matrix),
        "baseline": _run(lab.run(baseline), specs[baseline], matrix) if known else None,
        "one_loss": known and losses is not None and _is_one(losses[[run, baseline]]),
        "differences": differences(specs[baseline], spec) if known else [],
    }


def _is_one(losses: pd.Series[Any]) -> bool:
    return losses.fillna("").nunique() == 1


def ending(run: RunFolder, sweep: SweepFolder) -> Tree | None:
    """Return how a run of a sweep ended that has no result, and what to do; `None` for one that has
    a result, has not begun or is at work again.
    """
    status = run_status(run, sweep.stopped())
    if str(status.state) not in ENDED_BADLY:
        return None
    last = status.attempts[-1].traceback if status.attempts else ""
    traceback = last or str((run.result() or {}).get("traceback", ""))
    return {
        "kind": status.kind or str(status.state),
        "sentence": SENTENCES.get(status.kind or str(status.state), ""),
        "advice": ADVICE.get(status.kind, ADVICE[str(status.state)]).format(again=_again(sweep)),
        "traceback": traceback[-4000:],
    }


def _again(sweep: SweepFolder) -> str:
    """Return the command line that runs a sweep again."""
    if (command := sweep.command()) is None:
        return shlex.join(["tread-lab", "sweep", f"{sweep.name}.yaml", "--name", sweep.name])
    return f"cd {shlex.quote(command.folder)} && {shlex.join(['tread-lab', *command.words])}"


def differences(baseline: Mapping[str, Any], spec: Mapping[str, Any]) -> list[list[str]]:
    """Return [dotted field, baseline's value, the spec's] where they differ; routes as written."""
    before, after = _settings(baseline), _settings(spec)
    keys = [key for key in dict.fromkeys([*before, *after]) if not key.startswith(NOT_TOLD)]
    pairs = ((key, before.get(key, "absent"), after.get(key, "absent")) for key in keys)
    return [[key, old, new] for key, old, new in pairs if old != new]


def curve(run: RunFolder) -> Tree:
    """Return the logged training loss; of more than POINTS entries every k-th, the last always.

    Each k is a power of two, so that curves of several lengths keep steps in common.
    """
    logged = [(e.step, e.value) for e in run.entries() if e.key == TRAIN_LOSS]
    stride = 1 << ((len(logged) - 1) // POINTS).bit_length()
    last = len(logged)
    kept = [entry for n, entry in enumerate(logged, 1) if n % stride == 0 or n == last]
    return {"step": [step for step, _ in kept], "loss": numbers(value for _, value in kept)}


def pictures(run: RunFolder) -> list[Tree]:
    """Return the sample grids of a run: how they were drawn and where they lie."""
    grids = [
        {
            "evaluation": folder.path.name,
            "drawn": how_drawn(evaluation["spec"]),
            "url": f"runs/{run.name}/evaluations/{folder.path.name}/grid.png",
        }
        for folder in run.end_evaluations()
        if (folder.path / "grid.png").exists() and (evaluation := folder.read())
    ]
    return sorted(grids, key=lambda grid: grid["drawn"])


def _run(run: RunFolder, spec: Mapping[str, Any], evaluation: str | None) -> Tree:
    """Return what one run left behind.

    Args:
        evaluation: whose similarity of blocks is shown.
    """
    matrix = read_similarity(run, evaluation) if (run.path / "spec.yaml").exists() else None
    return {
        "name": run.name,
        "folder": str(run.path),
        "curve": curve(run),
        "pictures": pictures(run),
        "similarity": None if matrix is None else np.round(matrix.mean, 3).tolist(),
        "routes": [[route["start"], route["end"]] for route in spec["routes"]],
        "spec": yaml.safe_dump(dict(spec), sort_keys=False, default_flow_style=None, width=88),
    }


def _metrics(frame: pd.DataFrame, trial: pd.Series[Any]) -> list[Tree]:
    """Return every measured number of a trial beside its baseline's."""
    baselines = frame[frame["run"] == trial["baseline"]]
    rows = []
    for metric in choices(frame):
        value = float(trial[metric])
        dense = float(baselines[metric].iloc[0]) if len(baselines) else float("nan")
        kind = metric_kind(metric)
        delta = {"gap": value, "difference": value - dense, "value": float("nan")}[kind.compared]
        if not np.isfinite(value):
            continue
        own = [float(trial.get(metric + end, np.nan)) for end in (LOW, HIGH)]
        busy = disturbed(settled(frame), metric)[frame.index == trial.name].any()
        rows.append(
            {
                "metric": metric,
                "compared": kind.compared,
                "nature": kind.nature,
                "sign": kind.sign,
                "disturbed": bool(busy),
                "delta": numbers([delta])[0],
                "over": over_text(trial[metric + COUNT], "images") if np.isfinite(own[0]) else "",
                "texts": {
                    "value": typeset(metric_number(metric, value, *own)),
                    "dense": typeset(metric_number(metric, dense)),
                    "delta": typeset(metric_number(delta_column(metric), delta, *own)),
                },
            }
        )
    return rows


def _settings(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return a run's fields as text by dotted name, its routes in one line."""
    texts = {name: str(value) for name, value in dotted(tree)}
    routes = (f"{RouteSpec(**r).in_full} s={r['rate']}" for r in tree.get("routes", ()))
    return texts | {"routes": " + ".join(routes) or "none"}
