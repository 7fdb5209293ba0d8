"""The ranking of a sweep's cells, best first, and the places of its figures and records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from tread_lab.frames import (
    COUNT,
    HIGH,
    KEPT,
    LOW,
    UNIT,
    own_metrics,
    ranked_cells,
    ranking_caption,
    ranking_key,
    trials_frame,
    without_baseline,
)
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import mixtures
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.units import amount, with_interval
from tread_lab.terminal.console import ROWS, answer, answers, fitted, say
from tread_lab.tracking.store import shown as without_password

_WIDE = 6  # columns of results above which a table of few runs is transposed


def show_ranking(lab: Lab, name: str, *, as_json: bool) -> pd.DataFrame:
    """Print the sweep's cells, best first, each with its gap to the baseline and its interval."""
    frame = trials_frame(lab, name)
    if frame.empty:
        say(f"no run of {name} has begun")
        return frame
    if as_json:
        print(frame.to_json(orient="records", indent=1))
        return frame
    own = own_metrics(frame)
    shown = [c for c in frame.columns if c in own and _ranked(c)]
    if len(shown) > _WIDE >= frame["run"].nunique():
        answers.print(_by_setting(frame, shown))
        return _marked(frame, lab)
    key = ranking_key(frame)
    shown = [key, *(c for c in shown if c != key)] if key else shown
    cells = ranked_cells(frame, key)
    _show_cells(cells, shown)
    if key:
        answer(ranking_caption(key, frame.attrs.get("comparison", "")))
    if metric_names.GAP_HELDOUT in frame.columns:
        answer(f"gap: difference to the baseline, paired; ± 95% {_interval(frame, cells)}")
    for line in without_baseline(frame):
        answer(line)
    return _marked(frame, lab)


def _marked(frame: pd.DataFrame, lab: Lab) -> pd.DataFrame:
    """Say below a table what keeps its numbers from one comparison; return the frame."""
    for line in mixtures(lab, frame["run"].unique()):
        answer(line)
    return frame


def _show_cells(cells: pd.DataFrame, shown: Sequence[str]) -> None:
    heads = ("cell", "seeds", *shown, "state", "why")
    mixed = {c for c in shown if {"images", "seeds"} <= set(cells.get(c + UNIT, ()))}
    rows = [
        [
            row["cell"],
            str(row["seeds"]),
            *(_value(row, c) + _over_images(row, c) * (c in mixed) for c in shown),
            _state(row),
            str(row["reason"])[:80],
        ]
        for _, row in cells.head(ROWS).iterrows()
    ]
    if not any(row[-1] for row in rows):
        heads = heads[:-1]
    drop = ["seeds", *reversed(shown[1:]), "why"]
    answers.print(fitted(heads, rows, drop=drop, width=answers.width))
    if len(cells) > ROWS:
        answer(f"... and {len(cells) - ROWS} more")


def _by_setting(frame: pd.DataFrame, shown: Sequence[str]) -> Table:
    """Return a table of metrics by runs, for few runs that are sampled in many ways."""
    runs = [row for _, row in frame.drop_duplicates("run").iterrows()]
    heads = ["", *(f"{row['cell']} seed {row['seed']}" for row in runs)]
    rows = []
    for column in shown:
        values = [_value(row, column) + _price(row, column) for row in runs]
        rows.append([column, *values])
    return fitted(heads, rows, drop=[], width=answers.width)


def _price(row: pd.Series[Any], column: str) -> str:
    """Return the FLOPs of one image, to be shown beside a metric of samples."""
    flops = row.get(" ".join([metric_names.SAMPLE_FLOPS, *column.split(" ")[1:]]), math.nan)
    return f"  {amount(flops, 'FLOP')}" if "@" in column and math.isfinite(flops) else ""


def _state(row: pd.Series[Any]) -> str:
    if row["role"] != "baseline":
        return str(row["state"])
    return "baseline" if row["state"] == RunState.COMPLETED else f"baseline, {row['state']}"


def _interval(frame: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Return what the intervals of the gaps are over, and what pairing was worth.

    Args:
        frame: the trials, whose own intervals are over images.
        cells: their cells; the interval of one with several seeds is over seeds.
    """
    units = set(cells[metric_names.GAP_HELDOUT + UNIT]) - {""}
    count = frame[metric_names.GAP_HELDOUT + COUNT].max()
    over = {
        "seeds": "over seeds",
        "images": f"over {count:.0f} held-out images of one pair of runs (seeds vary more)",
    }
    kept = frame.loc[frame["run"] != frame["baseline"], metric_names.GAP_HELDOUT + KEPT].median()
    removed = f"; using equal images and noise removed {1 - kept:.1%} of the variance"
    paired = removed if math.isfinite(kept) else ""
    return " or ".join(text for unit, text in over.items() if unit in units) + paired


def _ranked(column: str) -> bool:
    """Return whether a column is ranked: held-out loss, a gap, or a metric of samples."""
    if ":" in column:
        return False
    return (
        column in (metric_names.HELDOUT_LOSS, metric_names.GAP_HELDOUT, metric_names.GAP_TRAIN)
        or "@" in column
    )


def _value(row: pd.Series[Any], column: str) -> str:
    if not math.isfinite(row[column]):
        return "-"
    low, high = (row.get(column + end, math.nan) for end in (LOW, HIGH))
    return with_interval(row[column], low, high, signed=column.startswith("gap/"))


def _over_images(row: pd.Series[Any], column: str) -> str:
    """Return the mark of an interval over images that stands beside some over seeds."""
    return " (images)" if row[column + UNIT] == "images" else ""


def show_places(lab: Lab, folder: SweepFolder, figures: Sequence[Path], *, mlflow: bool) -> None:
    """Say where the figures, the records and the MLflow store are."""
    shown = folder.figures if figures or folder.figures.exists() else None
    if shown is not None:
        say(f"figures: {shown}")
    say(f"records: {lab.root / 'runs'}")
    if mlflow:
        uri = without_password(lab.mlflow_uri)
        say(f"MLflow:  {uri} (`tread-lab ui --root {lab.root}` opens it)")
