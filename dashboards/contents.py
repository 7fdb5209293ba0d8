"""The page of a sweep, or of two: what it says in which order, from records to one HTML text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tread_lab.analysis.figures import curves, effects, loss_gap, pareto, placements
from tread_lab.analysis.figures.catalogue import sweep_records
from tread_lab.analysis.figures.points import Points, SweepRecords, cell_points, quality_metrics
from tread_lab.analysis.figures.smooth import smoothed
from tread_lab.config.errors import UserError
from tread_lab.config.units import duration, quantity
from tread_lab.dashboards import charts
from tread_lab.dashboards.charts import Chart, Numbers
from tread_lab.dashboards.panel import curve, panel, seed_values
from tread_lab.dashboards.repetition import repetition
from tread_lab.dashboards.search import search_charts
from tread_lab.dashboards.tables import cost_table, failures, ranking_table, table
from tread_lab.records.caveats import left_note, made_otherwise
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    delta_column,
    metric_kind,
    metric_label,
    value_text,
)
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import StoredPlan, hours_text
from tread_lab.results import (
    cells_frame,
    ranked_cells,
    ranking_caption,
    ranking_key,
    routed,
    trials_frame,
    with_delta,
    without_baseline,
)
from tread_lab.results.answer import Answer, answer
from tread_lab.results.intervals import t_interval

HERE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
EMBEDDED = 20  # best cells whose details stand in a file, beside those of dense
RUNNING = 12  # runs whose steps are shown
LIVE = 12  # runs whose training loss is shown before there is a result
GLOSSARY = {
    "dense": "training without routes: every token passes through every block",
    "route i→j": "routed tokens skip blocks i to j and return after block j (TREAD)",
    "s": "selection rate: the share of the tokens that are routed",
    "gap, Δ": "a run's value minus that of its dense baseline with the same seed, images and noise",
    "±": "half the width of the 95% interval of a mean; the column beside names what it is over",
    "disturbed": "measured beside other work on the machine, so that times are not the cell's own",
    "control": "dense training changed otherwise, such as a smaller batch",
}


def render(template: str, **values: Any) -> str:
    """Return a page of `template`; every text is escaped."""
    return str(_TEMPLATES.get_template(template).render(**values))


def page_file(lab: Lab, sweep: str) -> str:
    """Return the page of a sweep as one HTML text that loads nothing.

    Raises:
        UserError: no such sweep.
    """
    found = contents(lab, sweep)
    frame, plan, numbers = found.pop("frame"), found.pop("plan"), found["numbers"]
    dense = frame.loc[frame["role"] == "baseline", "cell"].drop_duplicates()
    chosen = [*(numbers["baseline", name] for name in dense), *found["best"][:EMBEDDED]]
    cells = [panel(lab, plan, frame, number, embed=True) for number in dict.fromkeys(chosen)]
    return file("page.html.jinja", **found, live=False, fragment=False, panels=cells)


def file(template: str, **values: Any) -> str:
    """Return a page of `template` with style, script and Plotly in it."""
    from plotly.offline import get_plotlyjs

    style, script = ((HERE / f"page.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
    assets = {"style": style, "script": script, "plotly": get_plotlyjs()}
    return render(template, **values, assets=assets)


def contents(lab: Lab, sweep: str) -> dict[str, Any]:
    """Return the content of the page of a sweep, without details of its cells.

    Raises:
        UserError: no such sweep.
    """
    folder = lab.known_sweep(sweep)
    plan = folder.plan().with_baseline_cells
    records = sweep_records(lab, folder)
    frame, numbers = records.frame, cell_numbers(records.frame)
    runs = frame.drop_duplicates("run")
    done = all(RunState(state).ended for state in runs["state"]) and not plan.to_suggest
    key = ranking_key(frame)
    ranked, found = _ranked(frame, key), answer(lab, frame, complete=done)
    run, use = _to_use(frame, found, ranked) if done else ("", "")
    return {
        "name": folder.name,
        "question": plan.question or f"The sweep {folder.name}",
        "answer": found,
        "warnings": [
            *made_otherwise(lab, runs["run"]),
            *without_baseline(frame),
            *left_note(frame.attrs["left"]),
        ],
        "progress": progress(lab, frame, plan),
        "facts": _facts(frame, runs, plan),
        "charts": [*_charts(records, plan, numbers, done=done)] if key else [*_live(lab, frame)],
        "training": [*_training(records, numbers)] if key else [],
        "costs": [*_costs(records, numbers)] if key else [],
        "ranking": ranking_table(frame, numbers),
        "ranking_caption": ranking_caption(key, plan.comparison) if key else "",
        "cost": cost_table(frame) if key else None,
        "failures": [*failures(lab, sweep, frame, numbers)],
        "holes": plan.excluded,
        "best": [numbers[pair] for pair in ranked],
        "numbers": numbers,
        "repeat": {**repetition(lab, plan, run), "use": use},
        "glossary": GLOSSARY | _meanings(frame),
        "written": datetime.now().astimezone().strftime("%d %B %Y, %H:%M"),
        "frame": frame,
        "plan": plan,
    }


def cell_numbers(frame: pd.DataFrame) -> Numbers:
    """Return (role, cell) -> number of the cell within the sweep."""
    pairs = frame[["role", "cell"]].drop_duplicates()
    return {pair: k for k, pair in enumerate(zip(pairs["role"], pairs["cell"]))}


def _charts(
    records: SweepRecords, plan: StoredPlan, numbers: Numbers, *, done: bool
) -> Iterator[Chart]:
    """Yield the pictures that answer the question, by the shape of the sweep."""
    key = ranking_key(records.frame)
    assert key is not None
    if plan.search is not None:
        yield from search_charts(records.frame, key)
    for metric in dict.fromkeys([key, *records.compared[:2]]):
        parts = [*records.compared_parts(metric)] if metric != key or metric == GAP_HELDOUT else []
        for part in parts or [records]:
            question = part.frame.attrs.get("comparison", "") if len(parts) > 1 else ""
            alone = records.equal_steps is not None and not question
            held = f", {part.frame.attrs['comparison']}" if alone else ""  # whatever is switched on
            for chart in _of_metric(part.frame, metric, numbers, done=done):
                yield replace(chart, title=chart.title + held, question=question)


def _of_metric(
    frame: pd.DataFrame, metric: str, numbers: Numbers, *, done: bool
) -> Iterator[Chart]:
    """Yield a map, a curve or a table of two axes of one metric, then its cells in a row each.

    Cells are shown by their difference to dense, or by the value where baselines move. Before the
    end the answer alone names a best cell.
    """
    by_value, named = _of_value(frame, metric), metric_label(metric)
    column = metric if by_value else delta_column(metric)
    rows = with_delta(frame, metric)
    others = rows[(rows["role"] != "baseline") & (rows["run"] != rows["baseline"])]
    points, trials = cell_points(cells_frame(others), column), rows[rows["role"] == "trial"]
    axes = [axis for axis in frame.attrs["axes"] if trials[axis].nunique(dropna=False) > 1]
    unplaced = [axis for axis in axes if axis not in ("start", "end")]
    if len(axes) - len(unplaced) == 2 and not by_value:
        yield from _maps(frame, metric, numbers, done=done)
    elif axes == unplaced and len(axes) == 1 and pd.api.types.is_numeric_dtype(frame[axes[0]]):
        found = curves.curves(frame if by_value else trials, column, axes[0])
        if axes[0] == curves.RATE and not by_value:
            found = curves.rates(frame, metric)
        if found.measured["x"].nunique() > 1:
            yield Chart(f"{named} along {axes[0]}", charts.lines(found, numbers, axes[0]))
    elif axes == unplaced and len(axes) == 2:
        drawn = charts.two_axes(points, axes, numbers)
        yield Chart(f"{named} over {' and '.join(axes)}", drawn, charts.map_key(points).strip())
    if len(points.measured) > 1:
        caption = "A marker is hollow where its 95% interval holds zero; a diamond is a control."
        over = f" Intervals: {points.measured_as}." if points.measured_as else ""
        drawn = charts.dots(points, numbers, seed_values(frame, column))
        yield Chart(f"All cells: {named}", drawn, caption + over)
    ways = None if by_value else effects.two_ways(frame, metric)
    if ways is not None:
        found_ways = Points(delta_column(metric), ways.assign(state="completed"), "")
        yield Chart(f"Effects: {named}", charts.dots(found_ways, {}), effects.caption(ways, metric))


def _maps(frame: pd.DataFrame, metric: str, numbers: Numbers, *, done: bool) -> Iterator[Chart]:
    """Yield the map of each panel and, of the loss gap, smooth ones, in one scale of colours."""
    parts = {name: placements.placements(p, metric) for name, p in placements.panels(frame)}
    drawn = [
        ("Route placement", name, places, placements.best_route(places) if done else "Provisional.")
        for name, places in parts.items()
        if len(places.measured) > 1
    ]
    if metric == GAP_HELDOUT and done:
        drawn += [("Smooth map", s.title, s, s.caption) for s in smoothed(frame)]
    scale = pd.concat(
        [pd.Series(dtype=float), *(places.rows["value"] for _, _, places, _ in drawn)]
    )
    for kind, name, places, caption in drawn:
        title = f"{kind}: {metric_label(metric)}" + f", {name}" * bool(name)
        chart = charts.place_map(places, numbers, scale)
        yield Chart(title, chart, caption + charts.map_key(places))


def _of_value(frame: pd.DataFrame, metric: str) -> bool:
    """Return whether cells are shown by the metric itself: their baselines differ."""
    if metric_kind(metric).compared == "gap":
        return False
    moved = ranking_key(frame) == metric and "@" not in metric
    return moved or bool(frame.loc[frame["role"] == "baseline", metric].isna().all())


def _live(lab: Lab, frame: pd.DataFrame) -> Iterator[Chart]:
    """Yield the training losses of the runs that have begun, before there is a result."""
    rows = frame[~frame["state"].isin([RunState.PENDING])].drop_duplicates("run").head(LIVE)
    named = {f"{row['cell']} seed {row['seed']}": lab.run(row["run"]) for _, row in rows.iterrows()}
    logged = {name: [values] for name, run in named.items() if len(values := curve(run))}
    if logged:
        note = "Training losses under routes are not comparable with dense; no cell has a result."
        yield Chart("Training loss", charts.losses(logged), note)


def _training(records: SweepRecords, numbers: Numbers) -> Iterator[Chart]:
    """Yield curves over training: of quality where it was measured, of the training-loss gap."""
    over = curves.STEPS_AXIS
    for metric in curves.training_metrics(records.training)[:2]:
        found = curves.over_training(records.training, metric)
        if len(found[over].measured):
            drawn = charts.lines(found[over], numbers, over)
            told = f"Intervals: {found[over].measured_as}." * bool(found[over].measured_as)
            caption = told + found[over].warning
            yield Chart(f"{metric_label(metric)} over training", drawn, caption)
    if gaps := loss_gap.gap_over_steps(records.frame, records.history):
        drawn, caption = charts.training_gaps(gaps), loss_gap.steps_caption(gaps)
        yield Chart("Training-loss gap", drawn, caption)


def _costs(records: SweepRecords, numbers: Numbers) -> Iterator[Chart]:
    """Yield quality against training FLOPs, where cells differ in them."""
    if not pareto.vary_in_cost(records.frame):
        return
    for metric in quality_metrics(records.frame)[:1]:
        points = pareto.pareto(records.frame, metric)
        if len(points.measured) > 2:
            title = f"{metric_label(metric)} against cost"
            yield Chart(title, charts.front(points, numbers), pareto.pareto_caption(points))


def progress(lab: Lab, frame: pd.DataFrame, plan: StoredPlan) -> dict[str, Any]:
    """Return counts of states, times, and the progress of running runs."""
    folder, runs, numbers = lab.sweep(plan.name), frame.drop_duplicates("run"), cell_numbers(frame)
    counts = Counter(map(str, runs["state"]))
    counts["pending"] += plan.to_suggest * max(1, runs["seed"].nunique())
    worked, left = folder.seconds_spent(), folder.time_left().strip(".")
    times = [f"elapsed: {duration(worked)} in all sessions"] if worked else []
    times += [f"about {left} left"] if left else []
    times += filter(None, [hours_text(folder, plan.hours)])
    steps = {trial.run: trial.steps for trial in plan.trials}
    rows = runs[runs["state"] == RunState.RUNNING].head(RUNNING)
    return {
        "counts": [(state, count) for state, count in counts.most_common() if count],
        "total": sum(counts.values()),
        "times": "; ".join(times),
        "running": [
            {
                "number": numbers[row["role"], row["cell"]],
                "name": f"{row['cell']} seed {row['seed']}",
                "step": lab.run(str(row["run"])).step(),
                "steps": steps[row["run"]],
            }
            for _, row in rows.iterrows()
        ],
    }


def _facts(frame: pd.DataFrame, runs: pd.DataFrame, plan: StoredPlan) -> list[tuple[str, str]]:
    """Return network, training, runs and cost in a few words each."""
    sources = " or ".join(dict.fromkeys(trial.spec["data"]["source"] for trial in plan.trials))
    completed = int((runs["state"] == RunState.COMPLETED).sum())
    ends = sorted({trial.steps for trial in plan.trials})
    steps = f"{ends[0]:,}" if len(ends) == 1 else f"{ends[0]:,} to {ends[-1]:,}"
    models, batches, precisions = (
        " or ".join(map(str, frame[column].unique()))
        for column in ("model", "train.batch", "precision")
    )
    facts = [
        ("network", f"{models} on {sources}"),
        ("training", f"{steps} steps of {batches}, {precisions}"),
        ("runs", f"{completed} of {len(runs)} completed"),
        ("seeds", str(frame["seed"].nunique())),
    ]
    if TRAIN_FLOPS in runs:
        spent = [quantity(float(runs[TRAIN_FLOPS].sum()), "FLOP")]
        if seconds := float(runs.get(TRAIN_SECONDS, pd.Series()).sum()):
            spent.append(f"{duration(seconds)} of device time")
        facts.append(("training of all runs", ", ".join(spent)))
    if plan.comparison:
        facts.append(("compared", plan.comparison))
    return facts


def _ranked(frame: pd.DataFrame, key: str | None) -> list[tuple[str, str]]:
    """Return role and name of the cells beside dense, best first."""
    if key is None:
        return []
    ranked = ranked_cells(frame, key)
    ranked = ranked[ranked["role"] != "baseline"]
    return list(zip(ranked["role"], ranked["cell"]))


def _to_use(
    frame: pd.DataFrame, found: Answer, ranked: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """Return the first run of the best routed cell, of dense where none is better, and a sentence;
    empty without a result."""
    name = found.cell or next((cell for role, cell in ranked if role == "trial"), "")
    rows = frame[(frame["role"] == "trial") & (frame["cell"] == name)]
    if rows.empty:
        return "", ""
    if found.cell and not found.better:
        return str(rows["baseline"].iloc[0]), "No cell is better than dense. Train dense again"
    return str(rows["run"].iloc[0]), f"Train {routed(name)}, the best cell, again"


def _meanings(frame: pd.DataFrame) -> dict[str, str]:
    """Return the words of the sweep's metrics with their meanings."""
    metrics = [m for m in (*quality_metrics(frame)[:4], TRAIN_FLOPS) if m in frame]
    found = {metric_label(metric): metric_kind(metric).meaning for metric in metrics}
    return {word: meaning for word, meaning in found.items() if meaning}


def versus(lab: Lab, first: str, second: str) -> tuple[str, pd.DataFrame]:
    """Return the metric of the first sweep, and a row for each common cell.

    Columns: name, value (the second sweep's less the first's, a mean over the seeds that both
    have), low and high of its 95% interval over seeds, seeds and state.

    Raises:
        UserError: a sweep is unknown or unmeasured, or the two share no cell and metric.
    """
    frames = [trials_frame(lab, name) for name in (first, second)]
    keys = [ranking_key(frame) for frame in frames]
    metric = keys[0]
    if metric is None or metric not in frames[1]:
        raise UserError(
            f"report: {second} must measure {metric} as {first} does. Try evaluating it."
        )
    columns = ["role", "cell", "seed", metric]
    one, other = (frame[columns].dropna(subset=[metric]) for frame in frames)
    pairs = one.merge(other, on=["role", "cell", "seed"], suffixes=(":a", ":b"))
    if pairs.empty:
        raise UserError(f"report: {first} and {second} must share a measured cell, got none.")
    pairs["apart"] = pairs[f"{metric}:b"] - pairs[f"{metric}:a"]
    rows = []
    for (_, cell), own in pairs.groupby(["role", "cell"], sort=False):
        values = own["apart"].to_numpy(float)
        ends = t_interval(values) if len(values) > 1 else (float(values[0]), np.nan, np.nan)
        rows.append((cell, *ends, len(values), "completed"))
    return metric, pd.DataFrame(rows, columns=["name", "value", "low", "high", "seeds", "state"])


def versus_file(lab: Lab, first: str, second: str) -> str:
    """Return the comparison of two sweeps as one HTML text that loads nothing.

    Raises:
        UserError: as of `versus`.
    """
    metric, rows = versus(lab, first, second)
    column = delta_column(metric)
    numbers = [value_text(column, *row) for row in rows[["value", "low", "high"]].to_numpy()]
    texts = {
        "cell": rows["name"].map(routed),
        f"{second} minus {first}": numbers,
        "seeds": rows["seeds"].map(str),
    }
    drawn = charts.dots(Points(column, rows, "95% over seeds"), {})
    return file(
        "versus.html.jinja",
        title=f"{second} against {first}",
        chart=Chart(f"{metric_label(metric)}: {second} minus {first}", drawn),
        table=table(pd.DataFrame(texts)),
    )
