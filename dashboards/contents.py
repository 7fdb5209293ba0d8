"""The page of a sweep, or of two: what it says in which order, from records to one HTML text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tread_lab.analysis.figures import curves, effects, loss_gap, pareto, placements
from tread_lab.analysis.figures.catalogue import sweep_records
from tread_lab.analysis.figures.points import (
    Points,
    SweepRecords,
    cell_points,
    quality_metrics,
    seed_values,
)
from tread_lab.analysis.figures.smooth import smoothed
from tread_lab.config.units import duration, quantity, span
from tread_lab.dashboards import charts
from tread_lab.dashboards.charts import Chart, Numbers
from tread_lab.dashboards.panel import curve, panel
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
    with_delta,
    without_baseline,
)
from tread_lab.results.answer import Answer, answer
from tread_lab.results.sweep_frames import versus
from tread_lab.sweep.repetition import repetition

HERE = Path(__file__).parent
_TEMPLATES = Environment(
    loader=FileSystemLoader(HERE),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
EMBEDDED = 20  # best cells whose details stand in a file, beside those of dense
ORDER = sorted(RunState, key=lambda state: (not state.ended, state is RunState.PENDING))
RUNNING = 12  # runs under way whose steps, and before a result whose losses, are shown
GLOSSARY = {
    "dense": "training without routes: every token passes through every block",
    "route i→j": "routed tokens skip blocks i to j and return after block j (TREAD)",
    "s": "selection rate: the share of the tokens that are routed",
    "gap, Δ": "a run's value minus that of its dense baseline with the same seed, images and noise",
    "±": "half the width of the 95% interval of a mean; the column beside names what it is over",
    "disturbed": "measured beside other work on the machine, so that times are not the cell's own",
    "control": "dense training changed otherwise, such as a smaller batch",
    "cell": "the settings of a run without its seed; runs of a cell differ in the seed alone",
    "held-out loss": "training loss without routes on images that were not trained on",
    "device-hours": "hours of training on one device, without evaluations",
    "tied": "no difference at 95%: the interval of the paired difference holds zero",
    "DiT-BxD/p": "a DiT of B blocks of width D with patches of p x p places",
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
    found = answer(lab, frame, complete=done, equal_steps=records.equal_steps)
    ranked = ranked_cells(frame, key)
    ranked = ranked[(ranked["role"] != "baseline") & (key is not None)]
    run, use = _to_use(frame, found, ranked) if done else ("", "")
    return {
        "name": folder.name,
        "question": plan.question or f"The sweep {folder.name}",
        "answer": found,
        "warnings": [
            *made_otherwise(lab, runs["run"]),
            *filter(None, ["; ".join(without_baseline(frame))]),
            *left_note(frame.attrs["left"]),
        ],
        "progress": progress(lab, frame, plan),
        "facts": _facts(frame, runs, plan),
        "charts": [*_charts(records, plan, numbers, done=done)] if key else [*_live(lab, frame)],
        "training": [*_training(records, numbers), *_states(lab, frame)] if key else [],
        "costs": [*_costs(records, numbers)] if key else [],
        "ranking": ranking_table(frame, numbers),
        "ranking_caption": ranking_caption(key, plan.comparison) if key else "",
        "cost": cost_table(frame) if key else None,
        "failures": [*failures(lab, sweep, frame, numbers)],
        "holes": plan.excluded,
        "best": [numbers[pair] for pair in zip(ranked["role"], ranked["cell"])],
        "numbers": numbers,
        "repeat": {**repetition(lab, plan, run, done=done), "use": use},
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
        marks = "A marker is hollow where its 95% interval holds zero; a diamond is a control. "
        caption, over = marks * (not by_value), f"Intervals: {points.measured_as}."
        drawn = charts.dots(points, numbers, seed_values(frame, column))
        yield Chart(f"All cells: {named}", drawn, caption + over * bool(points.measured_as))
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
    note = "Training losses under routes are not comparable with dense; no cell has a result."
    yield from _losses(lab, frame[frame["state"] != RunState.PENDING], "Training loss", note)


def _states(lab: Lab, frame: pd.DataFrame) -> Iterator[Chart]:
    """Yield the training losses of running and of diverged runs."""
    own = frame[frame["state"] == RunState.RUNNING]
    yield from _losses(lab, own, "Training loss of running runs", "As far as they are logged.")
    own = frame[frame["state"] == RunState.DIVERGED]
    yield from _losses(
        lab,
        own,
        "Training loss of diverged runs",
        "Up to the last finite value; a run without one is left out.",
    )


def _losses(lab: Lab, frame: pd.DataFrame, title: str, note: str) -> Iterator[Chart]:
    rows = frame.drop_duplicates("run").head(RUNNING)
    named = {f"{row['cell']} seed {row['seed']}": lab.run(row["run"]) for _, row in rows.iterrows()}
    logged = {name: [values] for name, run in named.items() if len(values := curve(run))}
    if logged:
        yield Chart(title, charts.losses(logged), note)


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
    waits = sum(counts[state] for state in RunState if not state.ended) and not folder.driven
    times += ["no command runs this sweep now"] if waits else []
    times += filter(None, [hours_text(folder, plan.hours)])
    steps = {trial.run: trial.steps for trial in plan.trials}
    rows = runs[runs["state"] == RunState.RUNNING].head(RUNNING)
    return {
        "counts": [(str(state), counts[state]) for state in ORDER if counts[state]],
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


def _facts(frame: pd.DataFrame, runs: pd.DataFrame, plan: StoredPlan) -> dict[str, str]:
    """Return network, training, seeds, search and cost in a few words each."""

    def either(values: Iterable[Any]) -> str:
        return " or ".join(map(str, dict.fromkeys(values)))

    sources = either(trial.spec["data"]["source"] for trial in plan.trials)
    ends = sorted(trial.steps for trial in plan.trials)
    steps = span(f"{end:,}" for end in (ends[0], ends[-1])) + " steps of"
    spent = quantity(float(runs[TRAIN_FLOPS].sum()), "FLOP") if TRAIN_FLOPS in runs else ""
    if seconds := float(runs.get(TRAIN_SECONDS, pd.Series()).sum()):
        spent += f", {duration(seconds)} of device time"
    space = f" from {len(plan.space):,}" if plan.space else ""
    return {
        "network": f"{either(frame['model'])} on {sources}",
        "training": f"{steps} {either(frame['train.batch'])}, {either(frame['precision'])}",
        "seeds": str(frame["seed"].nunique()),
        "search": f"{plan.suggested} of {plan.wanted} cells{space}" if plan.search else "",
        "training of completed runs": spent,
        "compared": plan.comparison,
    }


def _to_use(frame: pd.DataFrame, found: Answer, cells: pd.DataFrame) -> tuple[str, str]:
    """Return the first run of the best trial, of dense where none is better, and a sentence; empty
    without a result."""
    names = [found.cell] if found.cell else [*cells.loc[cells["role"] == "trial", "cell"]]
    rows = frame[(frame["role"] == "trial") & frame["cell"].isin(names[:1])]
    if rows.empty:
        return "", ""
    if found.cell and not found.better:
        return str(rows["baseline"].iloc[0]), "No cell is shown to be better. Train dense again"
    return str(rows["run"].iloc[0]), f"Train {routed(names[0])}, the best cell, again"


def _meanings(frame: pd.DataFrame) -> dict[str, str]:
    """Return the words of the sweep's metrics with their meanings."""
    metrics = [m for m in (*quality_metrics(frame)[:4], TRAIN_FLOPS) if m in frame]
    found = {metric_label(metric): metric_kind(metric).meaning for metric in metrics}
    return {word: meaning for word, meaning in found.items() if meaning}


def versus_file(lab: Lab, first: str, second: str) -> str:
    """Return the comparison of two sweeps as one HTML text that loads nothing.

    Raises:
        UserError: as of `versus`.
    """
    metric, rows = versus(lab, first, second)
    column = delta_column(metric)
    numbers = [value_text(column, *row) for row in rows[["value", "low", "high"]].to_numpy()]
    texts = {"cell": rows["name"], f"{second} minus {first}": numbers, "seeds": rows["seeds"]}
    drawn = charts.dots(Points(column, rows, "95% over seeds"), {})
    return file(
        "versus.html.jinja",
        title=f"{second} against {first}",
        chart=Chart(f"{metric_label(metric)}: {second} minus {first}", drawn),
        table=table(pd.DataFrame(texts)),
    )
