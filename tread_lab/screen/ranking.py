"""The ranking of a sweep's trials, best first, and where to look next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from tread_lab.frames import COUNT, KEPT, own_metrics, trials_frame
from tread_lab.records import names
from tread_lab.records.layout import Lab, SweepFolder
from tread_lab.records.mixture import made_of, mixtures
from tread_lab.screen.console import ROWS, out, say

_WIDE = 6  # a table with more columns of results is turned on its side


def show_ranking(lab: Lab, name: str, *, as_json: bool) -> pd.DataFrame:
    """The sweep's trials, best first, each with its gap to the baseline and the interval."""
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
        out.print(_by_setting(frame, shown))
        return frame
    ordered = frame
    if shown:
        lower = names.lower_is_better(shown[0])
        ordered = frame.sort_values(shown[0], ascending=lower, na_position="last", kind="stable")
    table = Table("cell", "seed", *map(escape, shown), "state", box=None)
    for column in table.columns:
        column.no_wrap = True
    for _, row in ordered.head(ROWS).iterrows():
        values = [_value(row, column) for column in shown]
        table.add_row(escape(row["cell"]), str(row["seed"]), *values, _ending(row))
    out.print(table)
    if len(frame) > ROWS:
        say(f"... and {len(frame) - ROWS} more")
    if names.GAP_HELDOUT in frame.columns:
        say(f"gap: difference to the baseline, paired; lower is better; ± 95% {_interval(frame)}")
    for mixture in mixtures(made_of(lab, frame["run"].unique())):
        say(f"not one comparison: {mixture}")
    return frame


def _by_setting(frame: pd.DataFrame, shown: Sequence[str]) -> Table:
    """Metrics as rows and runs as columns: few runs, sampled in many ways, and what that costs."""
    runs = [row for _, row in frame.drop_duplicates("run").iterrows()]
    heads = (escape(f"{row['cell']} seed {row['seed']}") for row in runs)
    table = Table("", *heads, box=None)
    table.columns[0].no_wrap = True
    for column in shown:
        values = [_value(row, column) + _price(row, column) for row in runs]
        table.add_row(escape(column), *values)
    return table


def _price(row: pd.Series[Any], column: str) -> str:
    """FLOPs of one image, beside a metric of samples."""
    flops = row.get(" ".join([names.SAMPLE_FLOPS, *column.split(" ")[1:]]), math.nan)
    return f"  {flops / 1e9:.3g} GFLOP" if "@" in column and math.isfinite(flops) else ""


def _ending(row: pd.Series[Any]) -> str:
    if row["state"] == "failed":
        return f"failed: {row['reason']}"[:60]
    return "baseline" if row["role"] == "baseline" else str(row["state"])


def _interval(frame: pd.DataFrame) -> str:
    """What the intervals speak of."""
    count = frame[names.GAP_HELDOUT + COUNT].max()
    kept = frame.loc[frame["run"] != frame["baseline"], names.GAP_HELDOUT + KEPT].median()
    paired = f"; pairing left {kept:.1%} of its variance" if math.isfinite(kept) else ""
    return f"over {count:.0f} held-out images of one pair of runs (seeds vary more){paired}"


def _ranked(column: str) -> bool:
    """Columns of the ranking: held-out loss, its gap, and the metrics of samples."""
    if ":" in column:
        return False
    return column in (names.HELDOUT_LOSS, names.GAP_HELDOUT, names.GAP_TRAIN) or "@" in column


def _value(row: pd.Series[Any], column: str) -> str:
    if not math.isfinite(row[column]):
        return "-"
    low, high = row.get(f"{column}:low"), row.get(f"{column}:high")
    if low is None or high is None or not math.isfinite(low):
        return f"{row[column]:.4g}"
    return f"{row[column]:+.4f} ± {(high - low) / 2:.4f}"


def show_places(lab: Lab, folder: SweepFolder, figures: Sequence[Path], *, mlflow: bool) -> None:
    """Where to look next."""
    shown = folder.figures if figures or folder.figures.exists() else None
    if shown is not None:
        say(f"figures: {shown}")
    say(f"records: {lab.root / 'runs'}")
    if mlflow:
        say(f"MLflow:  {lab.mlflow_uri} (`tread-lab ui --root {lab.root}` opens it)")
