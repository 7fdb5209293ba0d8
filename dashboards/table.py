"""The ranking as the page shows it: the report's texts, with the numbers that order its rows."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tread_lab.analysis.figures.kind import quality_metrics
from tread_lab.analysis.report.page import sheet
from tread_lab.dashboards.cell_map import Tree, cell_numbers, numbers, settled
from tread_lab.dashboards.views import choices
from tread_lab.frames import COUNT, ranking_caption, ranking_key
from tread_lab.frames.ranking_table import RATIOS, formatted, ranking
from tread_lab.records.metric_names import GAP_HELDOUT

ROWS = 300  # of the page
BESIDE = 3  # metrics beside the ranking's own


def ranking_table(frame: pd.DataFrame, metric: str = "", comparison: str = "") -> Tree:
    """Return the ranking by a metric, the `ranking_key` where there is no such metric.

    Of each column it has texts, whether the report shows it, and `numbers`: what rows are sorted
    by, all `None` for a column of words.

    Raises:
        UserError: nothing has been measured yet.
    """
    frame = settled(frame)
    key = metric if metric in choices(frame) else ranking_key(frame)
    beside = [m for m in quality_metrics(frame) if m != key][:BESIDE]
    rows = ranking(frame, key, beside=beside)
    cells = rows.attrs.pop("cells")  # pandas copies attributes at every step
    done = (rows["state"] == "completed") & (rows["reason"] == "")
    texts = formatted(rows[:ROWS], str(key))
    seen, place = sheet(texts, ROWS), cell_numbers(frame)
    over = set(texts.get("interval over", ())) - {""}
    said = f"; \N{PLUS-MINUS SIGN}: 95% interval over {over.pop()}" if len(over) == 1 else ""
    hidden = {"cell", *(["interval over"] if said else [])}
    hidden |= {"state"} if done.all() else set()
    columns = {"gap": GAP_HELDOUT, "interval over": GAP_HELDOUT + COUNT}
    columns |= {head: name for name, head in RATIOS.items()}
    measured = rows[:ROWS].reindex(columns=[columns.get(str(head), str(head)) for head in texts])
    return {
        "caption": ranking_caption(str(key), comparison) + said,
        "heads": seen.heads,
        "numeric": seen.numeric,
        "shown": [head not in hidden for head in texts],
        "cells": [place[pair] for pair in cells],
        "rows": seen.rows,
        "numbers": [_numbers(column) for _, column in measured.items()],
    }


def _numbers(column: pd.Series[Any]) -> list[float | None]:
    return numbers(pd.to_numeric(column, errors="coerce").astype(float))
