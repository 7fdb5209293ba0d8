"""Tables of the page: ranking, costs, failures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tread_lab.analysis.figures.points import quality_metrics
from tread_lab.config.units import ratio
from tread_lab.records.early_stopping import stopped_early
from tread_lab.records.lab import Lab, run_status
from tread_lab.records.metric_names import (
    IMAGES_PER_S,
    MFU,
    PEAK_MEMORY,
    STEP_SECONDS,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    metric_label,
)
from tread_lab.records.run_state import ADVICE, SENTENCES, RunState
from tread_lab.results import cells_frame, ranking_key, result_texts, routed
from tread_lab.results.cells import over_dense
from tread_lab.results.ranking import BUSY, formatted, ranking

COSTS = (TRAIN_FLOPS, TRAIN_SECONDS, STEP_SECONDS, IMAGES_PER_S, PEAK_MEMORY, MFU)
TIMES = (TRAIN_SECONDS, STEP_SECONDS, IMAGES_PER_S)  # of which disturbed cells have no fact
STEPS, STEP_FLOPS = "cost/steps", "cost/step_flops"
BESIDE = 3  # metrics beside that of the ranking
FAILURES = 200  # rows


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes:
        numeric: columns of numbers, aligned right.
        cells: number of the sweep's cell in each row; `None` for other rows.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[bool]
    cells: Sequence[int | None]


def table(texts: pd.DataFrame, cells: Sequence[int | None] = ()) -> Table:
    """Return a frame of texts as a table."""
    rows = [[routed(str(text)) for text in row] for row in texts.to_numpy().tolist()]
    columns = [[row[k] for row in rows] for k in range(len(texts.columns))]
    number = rf"[+\u2212]?\d|$|{BUSY}"
    numeric = [all(re.match(number, text) for text in column) for column in columns]
    return Table([*map(str, texts)], rows, numeric, cells or [None] * len(rows))


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
    return table(texts, cells)


def cost_table(frame: pd.DataFrame) -> Table | None:
    """Return costs of each cell, and speed-ups of a step over dense: by FLOPs beside measured.

    Both are ratios of means over seeds. Other work beside a disturbed cell makes its own no fact.
    """
    if not {TRAIN_FLOPS, TRAIN_SECONDS, STEP_SECONDS} <= set(frame):
        return None
    steps = frame["steps_done"].astype(float)
    frame = frame.assign(**{STEPS: steps, STEP_FLOPS: frame[TRAIN_FLOPS] / steps})
    cells = cells_frame(frame)
    cells = cells[cells["state"] == RunState.COMPLETED]
    if cells.empty:
        return None
    pairs = pd.MultiIndex.from_frame(cells[["role", "cell"]])
    texts = pd.DataFrame({"cell": cells["cell"], "steps": cells[STEPS].map("{:,.0f}".format)})
    for metric in COSTS:
        if metric in cells and cells[metric].notna().any():
            texts[metric_label(metric)] = result_texts(cells, metric)
        if metric == TRAIN_FLOPS:
            for head, cost in (("FLOPs", STEP_FLOPS), ("measured", STEP_SECONDS)):
                speeds = (1 / over_dense(frame, cost)).reindex(pairs)
                texts[f"speed-up, {head}"] = [f"{ratio(x)}\u00d7" * (x > 0) for x in speeds]
    texts["speed-up, measured"] = texts["speed-up, measured"].mask(cells["disturbed"], BUSY)
    return table(texts)


def failures(
    lab: Lab, sweep: str, frame: pd.DataFrame, numbers: Mapping[tuple[str, str], int]
) -> Iterator[dict[str, Any]]:
    """Yield each trial without a result: cell, seed, run, state, reason, remedy and traceback."""
    bad = [s for s in RunState if s.lacks_result or s is RunState.INTERRUPTED]
    alone = (frame["reason"] != "") & (frame["state"] == RunState.COMPLETED)
    rows = frame[frame["state"].isin(bad) | alone]
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
