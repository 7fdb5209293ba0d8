"""One file to send to a colleague: a sweep's question, answer, figures, cost and recipe."""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tread_lab.analysis.figures.catalogue import all_figures, sweep_records
from tread_lab.analysis.figures.kind import SweepRecords, quality_metrics
from tread_lab.analysis.figures.sentences import metric_text, routed
from tread_lab.analysis.figures.style import Figure, as_bytes
from tread_lab.analysis.report.answer import answer
from tread_lab.analysis.report.page import Sheet, sheet, terms, times_text
from tread_lab.analysis.report.reproduce import Repetition
from tread_lab.frames import (
    cells_frame,
    disturbed,
    of_baseline,
    ranking_caption,
    ranking_key,
    result_texts,
)
from tread_lab.frames.ranking_table import formatted, ranking
from tread_lab.records.durable import write_text
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    IMAGES_PER_S,
    MFU,
    PEAK_MEMORY,
    STEP_SECONDS,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
)
from tread_lab.records.plan import StoredPlan
from tread_lab.records.status import RunState
from tread_lab.specs.units import duration, quantity, ratio

_HERE = Path(__file__).parent
COSTS = (TRAIN_FLOPS, TRAIN_SECONDS, IMAGES_PER_S, PEAK_MEMORY, MFU)


def write_report(lab: Lab, sweep: str, *, path: Path | None = None) -> Path:
    """Write the report of a sweep, finished or not; return its path.

    Args:
        path: of the file; `None` means `report.html` beside the sweep's plan.

    Raises:
        UserError: no such sweep, or the file cannot be written.
    """
    path = lab.known_sweep(sweep).path / "report.html" if path is None else path
    write_text(path, render(contents(lab, sweep)))
    return path


def render(contents: dict[str, Any]) -> str:
    """Return the page; every text is escaped, style and pictures are inside."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_HERE / "report.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(**contents, style=style)


def contents(lab: Lab, sweep: str) -> dict[str, Any]:
    """Return everything that the page shows of a sweep."""
    folder = lab.known_sweep(sweep)
    plan = folder.plan()
    records = sweep_records(lab, folder)
    frame = records.frame
    key = ranking_key(frame)
    runs = frame.drop_duplicates("run")
    states = runs["state"].value_counts()
    done = bool(all(RunState(state).ended for state in runs["state"]))
    figures = _figures(records)
    first = _first([figure["name"] for figure in figures])
    return {
        "name": folder.name,
        "question": plan.question or f"The sweep {folder.name}",
        "answer": answer(lab, frame, plan, complete=done),
        "facts": _facts(frame, runs, plan),
        "states": [(str(state), int(count)) for state, count in states.items()],
        "first": [figure for figure in figures if figure["name"] in first],
        "figures": [figure for figure in figures if figure["name"] not in first],
        "times": times_text(folder, plan.created),
        "ranking": _ranking(frame),
        "terms": terms(
            [m for m in (*quality_metrics(frame)[:4], *COSTS) if m in frame], metric_text
        ),
        "ranking_caption": ranking_caption(key, plan.comparison) if key else "",
        "cost": cost_sheet(frame),
        "holes": plan.excluded,
        "endings": _endings(frame),
        "repeat": Repetition.of(lab, folder, plan),
        "written": datetime.now().astimezone().strftime("%d %B %Y, %H:%M"),
    }


def cost_sheet(frame: pd.DataFrame) -> Sheet | None:
    """Return speed-ups predicted from FLOPs beside measured ones, one row per cell.

    Both compare a step of a trial with one of its own baseline. The measured one is the ratio of
    the median seconds; `disturbed` cells are marked, because something else ran beside them.
    """
    if not {TRAIN_FLOPS, TRAIN_SECONDS, STEP_SECONDS} <= set(frame):
        return None
    steps = frame["steps_done"].astype(float)
    frame = frame.assign(**{"speed/flops": frame[TRAIN_FLOPS] / steps})
    ratios = {
        "speed/steps": steps,
        "speed/flops": of_baseline(frame, "speed/flops") / frame["speed/flops"],
        "speed/time": of_baseline(frame, STEP_SECONDS) / frame[STEP_SECONDS],
        "disturbed/steps": disturbed(frame, STEP_SECONDS).astype(float),
        "disturbed/hours": disturbed(frame, TRAIN_SECONDS).astype(float),
    }
    cells = cells_frame(frame.assign(**ratios))
    cells = cells[cells["state"] == RunState.COMPLETED]
    if cells.empty:
        return None
    times = "\N{MULTIPLICATION SIGN}"
    lengths = cells["speed/steps"].map("{:,.0f}".format)
    texts = pd.DataFrame({"cell": cells["cell"].map(routed), "steps": lengths})
    for metric in COSTS:
        if metric in cells and cells[metric].notna().any():
            head = metric_text(metric)
            texts[head] = result_texts(cells, metric)
        if metric == TRAIN_FLOPS:
            for head, column in (("FLOPs", "flops"), ("measured", "time")):
                speeds = cells[f"speed/{column}"]
                texts[f"speed-up, {head}"] = speeds.map(
                    lambda x: "" if np.isnan(x) else ratio(x) + times
                )
    for head, flags in (
        ("speed-up, measured", "steps"),
        (metric_text(TRAIN_SECONDS), "hours"),
    ):
        if head in texts:
            busy = (cells[f"disturbed/{flags}"] > 0) & (texts[head] != "")
            texts[head] += np.where(busy, " (disturbed)", "")
    return sheet(texts)


def _figures(records: SweepRecords) -> list[dict[str, Any]]:
    """Return the figures as the page shows them, in the order of their kinds."""
    return [
        {
            "name": drawn.name,
            "title": kind.title,
            "shows": " ".join(filter(None, (metric_text(drawn.metric), drawn.panel))),
            "caption": drawn.caption,
            "picture": _picture(drawn.figure, drawn.name),
            "wide": drawn.figure.get_figwidth() > 4,  # inches
        }
        for kind, drawn in all_figures(records)
    ]


def _first(names: list[str]) -> list[str]:
    """Return the figures of the first page: the map, else whatever is first, and the front."""
    of_kinds = (("route_grid",), ("pareto",))
    found = [next((n for n in names if n.startswith(kinds)), None) for kinds in of_kinds]
    return list(filter(None, found)) if all(found) else names[:2]


def _picture(fig: Figure, name: str) -> str:
    """Return a data address: an SVG, or a PNG where that would be too large or shows samples."""
    content, media = as_bytes(fig, "svg", name=name), "image/svg+xml"
    if name == "samples" or len(content) >= 400_000:
        content, media = as_bytes(fig, "png", dpi=200), "image/png"
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def _facts(frame: pd.DataFrame, runs: pd.DataFrame, plan: StoredPlan) -> list[tuple[str, str]]:
    """Return the facts at the head of the report: network, training, runs, cost."""
    sources = " or ".join(dict.fromkeys(trial.spec["data"]["source"] for trial in plan.trials))
    completed = int((runs["state"] == RunState.COMPLETED).sum())
    counts = [f"{count:,}" for count in sorted(set(frame["train.steps"]))]
    if plan.match is not None:
        ends = sorted(trial.steps for trial in plan.trials)
        counts = [f"{ends[0]:,} to {ends[-1]:,}"]
    models, batches, precisions = (
        " or ".join(map(str, frame[column].unique()))
        for column in ("model", "train.batch", "precision")
    )
    facts = [
        ("network", f"{models} on {sources}"),
        ("training", f"{', '.join(counts)} steps of {batches}, {precisions}"),
        ("runs", f"{completed} of {len(runs)} completed"),
        ("seeds", str(frame["seed"].nunique())),
    ]
    if TRAIN_FLOPS in runs:
        spent = [quantity(float(runs[TRAIN_FLOPS].sum()), "FLOP")]
        if seconds := float(runs.get(TRAIN_SECONDS, pd.Series()).sum()):
            spent.append(duration(seconds))
        facts.append(("training of all runs", ", ".join(spent)))
    if plan.comparison:
        facts.append(("compared", plan.comparison))
    return facts


def _ranking(frame: pd.DataFrame) -> Sheet | None:
    key = ranking_key(frame)
    if key is None:
        return None
    beside = [metric for metric in quality_metrics(frame) if metric != key]
    texts = formatted(ranking(frame, key, beside=beside[:3]), key)
    if set(texts["state"]) == {RunState.COMPLETED}:  # the facts above say so
        texts = texts.drop(columns="state")
    return sheet(texts)


def _endings(frame: pd.DataFrame) -> Sheet | None:
    """Return every trial without a number, with its reason."""
    rows = frame[~frame["state"].isin(["completed"]) | (frame["reason"] != "")]
    if rows.empty:
        return None
    texts = pd.DataFrame(
        {
            "trial": rows["cell"],
            "seed": rows["seed"].astype(str),
            "run": rows["run"],
            "state": rows["state"],
            "step": rows["steps_done"].map(lambda s: "" if pd.isna(s) else str(s)),
            "reason": rows["reason"],
        }
    )
    return sheet(texts)
