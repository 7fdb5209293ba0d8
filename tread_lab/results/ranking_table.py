"""The ranking of a sweep's cells as one table wherever it is shown: numbers, texts, Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tread_lab.config.errors import UserError
from tread_lab.config.labels import plain_markdown
from tread_lab.config.units import ratio
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    FAMILY_FLOPS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
)
from tread_lab.results.cells import COUNT, HIGH, LOW, UNIT, of_baseline, require_metric
from tread_lab.results.ranking import ranked_cells, ranking_key
from tread_lab.results.texts import intervals_over, result_texts

ENDS = (LOW, HIGH, COUNT, UNIT)  # of an interval, beside its number
OF_DENSE, HOURS_OF_DENSE = "cost/of_dense", "cost/hours_of_dense"
SAMPLES = ", ± of samples"  # in the head of a column: of one seed, over its sampled images
RATIOS = {"flops": "FLOPs / dense", "hours": "device-hours / dense"}


def ranking(
    frame: pd.DataFrame, metric: str | None = None, *, beside: Sequence[str] = ()
) -> pd.DataFrame:
    """Return one row per cell, best first by `metric`; cells without a number follow.

    The rows are those of `ranked_cells`; `None` means the `ranking_key` of the frame.

    Columns: rank, cell, `metric`, the gap in held-out loss, flops (`training_price` over the
    baseline's), hours (of a device, likewise), the metrics `beside`, state, reason, disturbed.
    Where flops counts parents, hours, which do not, are left out. Of each metric also `:low`,
    `:high`, `:n` and `:unit`. A baseline is ranked among the trials; its gap is 0 by definition.
    `table.attrs["cells"]` has (role, cell) of each row.

    Raises:
        UserError: no such metric, or none is given and nothing has been measured.
    """
    metric = metric or ranking_key(frame)
    if metric is None:
        raise UserError("nothing has been measured in this sweep yet, so no cell can be ranked")
    require_metric(frame, metric)
    ratios, price = {}, training_price(frame)
    if TRAIN_FLOPS in frame:
        frame = frame.assign(**{OF_DENSE: _of_dense(frame, price)})
        ratios["flops"] = OF_DENSE
    if price == TRAIN_FLOPS and DEVICE_HOURS in frame:
        frame = frame.assign(**{HOURS_OF_DENSE: _of_dense(frame, DEVICE_HOURS)})
        ratios["hours"] = HOURS_OF_DENSE
    cells = ranked_cells(frame, metric)
    done = cells["state"] == "completed"
    columns = {name: name for name in _with_ends(metric, GAP_HELDOUT)} | ratios
    columns |= {name: name for name in _with_ends(*beside)}
    measured = cells[done].reindex(cells.index)  # of others, nothing
    numbers = {name: measured[column] for name, column in columns.items() if column in measured}
    last = cells[["state", "reason", *(["disturbed"] if "disturbed" in cells else [])]]
    parts = [cells[["rank", "cell"]], pd.DataFrame(numbers), last]
    table = pd.concat(parts, axis=1).reset_index(drop=True)
    table.attrs["cells"] = list(zip(cells["role"], cells["cell"]))
    return table


def formatted(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the ranking as people read it: texts only, a number with its interval in one column.

    `interval over` says what the intervals of a row are over, each where they differ.
    """
    ranks = table["rank"].map(lambda rank: "" if pd.isna(rank) else str(rank))
    texts = pd.DataFrame({"rank": ranks, "cell": table["cell"]})
    over: dict[str, Sequence[str]] = {}
    for column in table.columns[2:]:  # after rank and cell
        if column != metric and table[column].isna().all():  # as where nothing has a baseline
            continue
        if head := RATIOS.get(column):
            texts[head] = table[column].map(lambda x: "" if pd.isna(x) else ratio(x))
            if column == "hours" and "disturbed" in table:
                texts[head] += np.where(table["disturbed"], " (disturbed)", "")
        elif ":" not in column and column not in ("state", "reason", "disturbed"):
            name = "gap" if column == GAP_HELDOUT else column
            one_seed = metric != column and "samples" in {*table[column + UNIT]}
            name += SAMPLES * one_seed
            texts[name] = result_texts(table, column)
            over[name] = [""] * len(table) if one_seed else intervals_over(table, column)
    overs = [_over(dict(zip(over, row))) for row in zip(*over.values())]
    if "gap" in texts or any(overs):
        last = "gap" if "gap" in texts else metric
        texts.insert(list(texts).index(last) + 1, "interval over", overs)
    reasons = table["reason"].where(table["reason"] == "", ": " + table["reason"])
    texts["state"] = (table["state"] + reasons).to_numpy()
    return texts


def to_markdown(texts: pd.DataFrame) -> str:
    """Return a table of texts in GitHub's Markdown."""
    rows = [list(texts.columns), *texts.astype(str).to_numpy().tolist()]
    escaped = [[plain_markdown(cell).replace("|", "\\|") for cell in row] for row in rows]
    head, *body = ("| " + " | ".join(row) + " |\n" for row in escaped)
    return "".join([head, f"|{'---|' * len(texts.columns)}\n", *body])


def training_price(rows: pd.DataFrame) -> str:
    """Return the metric of what training costs: FLOPs with those of the runs that a run goes on
    from, where these differ and all are recorded."""
    own, whole = rows.get(TRAIN_FLOPS), rows.get(FAMILY_FLOPS)
    if own is None or whole is None or whole[own.notna()].isna().any():
        return TRAIN_FLOPS
    parents = (whole - own).dropna()
    differ = len(parents) > 0 and parents.max() - parents.min() > 1e-6 * whole.max()
    return FAMILY_FLOPS if differ else TRAIN_FLOPS


def _of_dense(frame: pd.DataFrame, cost: str) -> pd.Series[float]:
    """Return the cost of each trial over that of its own baseline; 1 for a baseline."""
    ratio = frame[cost] / of_baseline(frame, cost)
    return ratio.where(frame["role"] != "baseline", frame[cost] / frame[cost])


def _with_ends(*metrics: str) -> list[str]:
    return [metric + end for metric in metrics for end in ("", *ENDS)]


def _over(texts: Mapping[str, str]) -> str:
    """Return `3 seeds`, or `gap: 2 seeds, heldout/loss: 3 seeds` where they differ."""
    known = {name: text for name, text in texts.items() if text}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), "")
    return ", ".join(f"{name}: {text}" for name, text in known.items())
