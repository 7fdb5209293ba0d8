"""The ranking of a sweep's cells, best first, and the places of its figures and records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from tread_lab.frames import (
    KEPT,
    intervals_over,
    own_metrics,
    ranked_cells,
    ranking_caption,
    ranking_key,
    result_texts,
    trials_frame,
    without_baseline,
)
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.records.provenance import mixtures
from tread_lab.records.status import RunState
from tread_lab.records.sweep_folder import SweepFolder
from tread_lab.specs.units import amount
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
    for line in _meanings(frame, cells, shown):
        answer(line)
    for line in without_baseline(frame):
        answer(line)
    return _marked(frame, lab)


def _marked(frame: pd.DataFrame, lab: Lab) -> pd.DataFrame:
    """Say below a table what keeps its numbers from one comparison; return the frame."""
    for line in mixtures(lab, frame["run"].unique()):
        answer(line)
    return frame


def _show_cells(cells: pd.DataFrame, shown: Sequence[str]) -> None:
    heads = ("rank", "cell", "seeds", *shown, "state", "why")
    head = cells.head(ROWS)
    results = [*zip(*_columns(head, cells, shown))] or [()] * len(head)
    rows = [
        [_rank(row), row["cell"], str(row["seeds"]), *texts, _state(row), str(row["reason"])[:80]]
        for (_, row), texts in zip(head.iterrows(), results)
    ]
    if not any(row[-1] for row in rows):
        heads = heads[:-1]
    drop = [head for head in ("seeds", *reversed(shown[1:]), "why", "rank") if head in heads]
    answers.print(fitted(heads, rows, drop=drop, width=answers.width))
    if len(cells) > ROWS:
        answer(f"... and {len(cells) - ROWS} more")


def _by_setting(frame: pd.DataFrame, shown: Sequence[str]) -> Table:
    """Return a table of metrics by runs, for few runs that are sampled in many ways."""
    runs = frame.drop_duplicates("run")
    rows = [row for _, row in runs.iterrows()]
    heads = ["", *(f"{row['cell']} seed {row['seed']}" for row in rows)]
    texts = {column: map(_or_dash, result_texts(runs, column)) for column in shown}
    lines = [
        [column, *(text + _price(row, column) for text, row in zip(texts[column], rows))]
        for column in shown
    ]
    return fitted(heads, lines, drop=[], width=answers.width)


def _price(row: pd.Series[Any], column: str) -> str:
    """Return the FLOPs of one image, to be shown beside a metric of samples."""
    flops = row.get(" ".join([metric_names.SAMPLE_FLOPS, *column.split(" ")[1:]]), math.nan)
    return f"  {amount(flops, 'FLOP')}" if "@" in column and math.isfinite(flops) else ""


def _state(row: pd.Series[Any]) -> str:
    if row["role"] != "baseline":
        return str(row["state"])
    return "baseline" if row["state"] == RunState.COMPLETED else f"baseline, {row['state']}"


def _meanings(frame: pd.DataFrame, cells: pd.DataFrame, shown: Sequence[str]) -> Iterator[str]:
    """Say what the gap is, what pairing was worth, and what the intervals are over."""
    gap = metric_names.GAP_HELDOUT
    if gap in frame:
        kept = frame.loc[frame["run"] != frame["baseline"], gap + KEPT].median()
        removed = f"; using equal images and noise removed {1 - kept:.1%} of the variance"
        paired = removed if math.isfinite(kept) else ""
        yield f"gap: difference to the baseline, paired{paired}"
    if overs := _overs(cells, shown):
        alone = "; seeds vary more" * any("images" in over for over in overs)
        yield f"±: 95% interval over {' or '.join(overs)}{alone}"


def _overs(cells: pd.DataFrame, shown: Sequence[str]) -> list[str]:
    """Return what the intervals in the table are over, each once."""
    overs = dict.fromkeys(over for column in shown for over in intervals_over(cells, column))
    return [over for over in overs if over]


def _columns(head: pd.DataFrame, cells: pd.DataFrame, shown: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts of each metric, with what intervals are over where that differs."""
    mixed = len(_overs(cells, shown)) > 1
    for column in shown:
        pairs = zip(map(_or_dash, result_texts(head, column)), intervals_over(head, column))
        yield [text + (f" ({over})" if over and mixed else "") for text, over in pairs]


def _ranked(column: str) -> bool:
    """Return whether a column is ranked: held-out loss, a gap, or a metric of samples."""
    if ":" in column:
        return False
    return (
        column in (metric_names.HELDOUT_LOSS, metric_names.GAP_HELDOUT, metric_names.GAP_TRAIN)
        or "@" in column
    )


def _rank(row: pd.Series[Any]) -> str:
    return str(row["rank"]) if pd.notna(row.get("rank")) else ""


def _or_dash(text: str) -> str:
    return text or "-"


def show_places(lab: Lab, folder: SweepFolder, figures: Sequence[Path], *, mlflow: bool) -> None:
    """Say where the figures, the records and the MLflow store are."""
    shown = folder.figures if figures or folder.figures.exists() else None
    if shown is not None:
        say(f"figures: {shown}")
    say(f"records: {lab.root / 'runs'}")
    if mlflow:
        uri = without_password(lab.mlflow_uri)
        say(f"MLflow:  {uri} (`tread-lab ui --root {lab.root}` opens it)")
