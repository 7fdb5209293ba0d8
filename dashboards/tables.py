"""Tables of the page: ranking, costs, failures and setups as texts, with numbers to sort by."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.points import quality_metrics
from tread_lab.config.units import ratio
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab, run_status
from tread_lab.records.metric_names import (
    IMAGES_PER_S,
    MFU,
    MINUS,
    PEAK_MEMORY,
    STEP_SECONDS,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    metric_label,
)
from tread_lab.records.run_state import SENTENCES, RunState
from tread_lab.results import cells_frame, of_baseline, ranking_key, result_texts, routed
from tread_lab.results.ranking import formatted, ranking

COSTS = (TRAIN_FLOPS, TRAIN_SECONDS, STEP_SECONDS, IMAGES_PER_S, PEAK_MEMORY, MFU)
BESIDE = 3  # metrics beside that of the ranking
FAILURES = 200  # rows
ADVICE = {  # kind of failure, or state -> remedy
    "oom": "Lower execution.micro_batch, which keeps the run, and run the sweep again.",
    "parent": "See why the parent run failed; --retry-failed runs both again.",
    "failed": "Mend what the traceback names; --retry-failed runs it again.",
    "diverged": "A result, not run again. Try a lower train.lr in another cell.",
    "early": "Stopped early: worse than others at the same step. `stop_early: null` turns it off.",
    "interrupted": "Run the sweep again; it continues from the last checkpoint.",
}


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        numeric: columns of numbers, aligned right.
        sort: sort key of each table cell; `None` for words.
        cells: number of the sweep's cell in each row; `None` for other rows.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    sort: Sequence[Sequence[float | None]]
    cells: Sequence[int | None]


def table(texts: pd.DataFrame, cells: Sequence[int | None] = ()) -> Table:
    """Return a frame of texts as a table; columns of numbers sort numerically."""
    rows = [[routed(str(text)) for text in row] for row in texts.to_numpy().tolist()]
    columns = [[row[k] for row in rows] for k in range(len(texts.columns))]
    numeric = [all(re.match(r"[+\u2212]?\d|$", text) for text in column) for column in columns]
    sort = [[_number(text) if n else None for text, n in zip(row, numeric)] for row in rows]
    return Table(list(map(str, texts)), rows, numeric, sort, cells or [None] * len(rows))


def ranking_table(frame: pd.DataFrame, numbers: Mapping[tuple[str, str], int]) -> Table | None:
    """Return the ranking of all cells, best first; `None` before anything is measured."""
    key = ranking_key(frame)
    if key is None:
        return None
    beside = [metric for metric in quality_metrics(frame) if metric != key][:BESIDE]
    rows = ranking(frame, key, beside=beside)
    cells = [numbers.get(pair) for pair in rows.attrs["cells"]]
    texts = formatted(rows, key)
    if set(texts["state"]) == {RunState.COMPLETED}:
        texts = texts.drop(columns="state")
    made = table(texts, cells)
    values = rows[key].map(lambda x: None if pd.isna(x) else float(x))
    at = next((k for k, head in enumerate(made.heads) if head in ("gap", key)), None)
    if at is not None:
        for row, value in zip(made.sort, values):
            row[at] = value  # type: ignore[index]
    return made


def cost_table(frame: pd.DataFrame) -> Table | None:
    """Return speed-ups predicted from FLOPs beside measured ones, a row for each cell.

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
    }
    cells = cells_frame(frame.assign(**ratios))
    cells = cells[cells["state"] == RunState.COMPLETED]
    if cells.empty:
        return None
    lengths = cells["speed/steps"].map("{:,.0f}".format)
    texts = pd.DataFrame({"cell": cells["cell"].map(routed), "steps": lengths})
    for metric in COSTS:
        if metric in cells and cells[metric].notna().any():
            texts[metric_label(metric)] = result_texts(cells, metric)
        if metric == TRAIN_FLOPS:
            for head, column in (("FLOPs", "flops"), ("measured", "time")):
                texts[f"speed-up, {head}"] = cells[f"speed/{column}"].map(
                    lambda x: "" if np.isnan(x) else f"{ratio(x)}\N{MULTIPLICATION SIGN}"
                )
    for head in ("speed-up, measured", metric_label(TRAIN_SECONDS)):
        if head in texts:
            busy = cells["disturbed"] & (texts[head] != "")
            texts[head] += np.where(busy, " (disturbed)", "")
    return table(texts)


def failures(
    lab: Lab, sweep: str, frame: pd.DataFrame, numbers: Mapping[tuple[str, str], int]
) -> Iterator[dict[str, Any]]:
    """Yield each trial without a result: cell, seed, run, state, reason, remedy and traceback."""
    bad = frame["state"].map(lambda state: bool(RunState(state).lacks_result))
    bad |= frame["state"] == RunState.INTERRUPTED
    rows = frame[bad | ((frame["reason"] != "") & (frame["state"] == RunState.COMPLETED))]
    stopped = stopped_early(lab, lab.sweep(sweep).plan())
    for row in rows.head(FAILURES).to_dict("records"):
        status = run_status(lab.run(str(row["run"])), stopped)
        if status.kind == "paused":  # of a sweep that goes on
            continue
        last = status.attempts[-1].traceback if status.attempts else ""
        kind = status.kind or str(status.state)
        yield {
            "number": numbers[row["role"], row["cell"]],
            "cell": routed(str(row["cell"])),
            "seed": int(row["seed"]),
            "run": str(row["run"]),
            "state": str(row["state"]),
            "reason": str(row["reason"]) or SENTENCES.get(kind, ""),
            "remedy": ADVICE.get(kind, ADVICE.get(str(status.state), "")),
            "traceback": last[-4000:],
        }


def _number(text: str) -> float | None:
    found = re.match(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?", text.replace(MINUS, "-"))
    value = float(found[0].replace(",", "")) if found else math.nan
    return value if math.isfinite(value) else None
