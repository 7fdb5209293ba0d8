"""A selected cell beside its dense baseline: numbers, curves, samples, similarity, differences."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.points import quality_metrics
from tread_lab.analysis.figures.samples import how_drawn
from tread_lab.analysis.figures.similarity import common_evaluation, read_similarity
from tread_lab.config.fields import dotted
from tread_lab.config.routes import RouteSpec
from tread_lab.dashboards import charts
from tread_lab.dashboards.charts import Chart
from tread_lab.dashboards.tables import COSTS, TIMES
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    DELTA,
    GAP_HELDOUT,
    HELDOUT_LOSS,
    TRAIN_LOSS,
    delta_column,
    metric_label,
)
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.sweep_folder import StoredPlan
from tread_lab.results import cells_frame, intervals_over, result_texts, routed, with_delta
from tread_lab.results.ranking import BUSY

POINTS = 200  # of a curve; longer ones are thinned out
WHITE = "White: the blocks that routed tokens skip."
NOT_SHOWN = ("seed", "execution.")  # fields of a spec that are no difference between cells


def panel(
    lab: Lab, plan: StoredPlan, frame: pd.DataFrame, number: int, *, embed: bool
) -> dict[str, Any]:
    """Return the panel of the cell with this number, all seeds together.

    Args:
        embed: whether pictures are embedded in the page; else they link to the server.
    """
    cells = cells_frame(frame)
    role, name = cells["role"].iloc[number], cells["cell"].iloc[number]
    trials = frame[(frame["role"] == role) & (frame["cell"] == name)]
    dense = frame[frame["run"].isin(trials["baseline"])].drop_duplicates("run")
    specs = {trial.run: trial.spec for trial in plan.trials}
    first, runs = str(trials["run"].iloc[0]), [*map(str, trials["run"])]
    baselines = [*map(str, dense["run"])]
    shown = [first, *(run for run in baselines[:1] if run != first)]
    matrix = common_evaluation(map(lab.run, shown), plan.planned)
    whole = [run for run in shown if (lab.run(run).path / "spec.yaml").exists()]
    names = {run: "dense" if run in baselines else routed(str(name)) for run in shown}
    found = [(names[run], read_similarity(lab.run(run), matrix)) for run in whole]
    return {
        "number": number,
        "name": routed(str(name)),
        "role": role,
        "seeds": sorted(map(int, trials["seed"])),
        "states": [*map(str, trials["state"])],
        "reasons": [reason for reason in trials["reason"] if reason],
        "numbers": numbers(frame, number),
        "curves": _curves(lab, routed(str(name)), runs, baselines),
        "similarity": [
            Chart(f"Similarity of outputs, {of}", charts.similarity(m), WHITE * bool(m.routes))
            for of, m in found
            if m is not None
        ],
        "pictures": sorted(
            (
                {"name": names[run], **picture}
                for run in shown
                for picture in pictures(lab.run(run), embed=embed)
            ),
            key=lambda picture: picture["drawn"],
        ),
        "differences": differences(specs[baselines[0]], specs[first]) if baselines else [],
        "runs": runs,
    }


def numbers(frame: pd.DataFrame, number: int) -> list[list[str]]:
    """Return [metric, value, dense's value, difference, unit of the intervals] of a cell."""
    wanted = [DELTA, GAP_HELDOUT, HELDOUT_LOSS, *quality_metrics(frame), *COSTS]
    metrics = [metric for metric in dict.fromkeys(wanted) if metric in frame]
    for metric in metrics:
        frame = with_delta(frame, metric)
    cells = cells_frame(frame)
    cell = cells.iloc[[number]]
    served = frame.loc[
        (frame["role"] == cell["role"].iloc[0]) & (frame["cell"] == cell["cell"].iloc[0])
    ]
    dense = cells_frame(frame[frame["run"].isin(served["baseline"])])
    rows = []
    for metric in metrics:
        column, own = delta_column(metric), result_texts(cell, metric)[0]
        compared = result_texts(cell, column)[0] if column in cell else ""
        if compared and metric in TIMES and {*cell["disturbed"], *dense["disturbed"]} != {False}:
            compared = BUSY
        if not own and not compared:
            continue
        value = "" if column == metric else own
        theirs = result_texts(dense, metric)[0] if len(dense) and column != metric else ""
        over = intervals_over(cell, column)[0]
        texts = (metric_label(metric), value, theirs, compared, over)
        rows.append([*map(routed, texts)])
    return rows


def _curves(lab: Lab, name: str, runs: Sequence[str], dense: Sequence[str]) -> Chart | None:
    """Return the training losses of a cell and of dense, with their range over seeds."""
    named = {"dense": [curve(lab.run(run)) for run in dense if run not in runs]}
    named[name] = [curve(lab.run(run)) for run in runs]
    known = {of: [c for c in some if len(c)] for of, some in named.items()}
    known = {of: some for of, some in known.items() if some}
    return Chart("Training loss", charts.losses(known)) if known else None


def curve(run: RunFolder) -> pd.Series[float]:
    """Return the logged training loss by step, thinned to at most POINTS entries.

    Every k-th entry is kept, k a power of two, so that curves share steps.
    """
    losses = [entry for entry in run.entries() if entry.key == TRAIN_LOSS]
    logged = [(entry.step, entry.value) for entry in losses if np.isfinite(entry.value)]
    stride = 1 << ((len(logged) - 1) // POINTS).bit_length()
    kept = [entry for n, entry in enumerate(logged, 1) if n % stride == 0 or n == len(logged)]
    return pd.Series(dict(kept), dtype=float)


def pictures(run: RunFolder, *, embed: bool) -> list[dict[str, str]]:
    """Return the sample grids of a run: sampler settings, and content or address."""
    return [
        {"drawn": how_drawn(evaluation["spec"]), "source": _source(run, folder.path, embed=embed)}
        for folder in run.end_evaluations()
        if (folder.path / "grid.png").exists() and (evaluation := folder.read())
    ]


def differences(baseline: Mapping[str, Any], spec: Mapping[str, Any]) -> list[list[str]]:
    """Return [dotted field, baseline's value, the spec's] where they differ; routes as written."""
    before, after = _settings(baseline), _settings(spec)
    keys = [key for key in dict.fromkeys([*before, *after]) if not key.startswith(NOT_SHOWN)]
    pairs = ((key, before.get(key, "absent"), after.get(key, "absent")) for key in keys)
    return [[key, old, new] for key, old, new in pairs if old != new]


def _source(run: RunFolder, folder: Any, *, embed: bool) -> str:
    if not embed:
        return f"/runs/{run.name}/evaluations/{folder.name}/grid.png"
    content = base64.b64encode((folder / "grid.png").read_bytes()).decode()
    return f"data:image/png;base64,{content}"


def _settings(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return a run's fields as text by dotted name, its routes in one line."""
    texts = {name: str(value) for name, value in dotted(tree)}
    routes = (f"{RouteSpec(**r).in_full} s={r['rate']}" for r in tree.get("routes", ()))
    return texts | {"routes": " + ".join(routes) or "none"}
