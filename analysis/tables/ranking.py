"""The ranking of a sweep's cells as a data frame, as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.pareto import spent
from tread_lab.analysis.figures.placements import other_axes
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    UNIT,
    disturbed,
    metric_numbers,
    of_baseline,
    over_texts,
    ranked_cells,
    ranking_key,
    require_metric,
)
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    ENERGY,
    GAP_HELDOUT,
    TRAIN_FLOPS,
)
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import plain_markdown
from tread_lab.specs.units import ratio

ENDS = (LOW, HIGH, COUNT, UNIT)  # of an interval, beside its number
GAP_ENDS = ("gap_low", "gap_high", "n", "unit")
NOT_SHOWN = (*GAP_ENDS, "reason", "disturbed")
OF_DENSE, BUSY = "cost/of_dense", "cost/disturbed"
SPENT = {ENERGY: ("energy", "energy / dense"), DEVICE_HOURS: ("hours", "device-hours / dense")}
RATIOS = {"flops": "FLOPs / dense", **dict(SPENT.values())}


def ranking(
    frame: pd.DataFrame,
    metric: str | None = None,
    *,
    gap: str = GAP_HELDOUT,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Return one row per cell, best first by `metric`; cells without a number follow.

    The rows are those of `ranked_cells`; `None` means the `ranking_key` of the frame.

    Columns: rank, route, the other axes, value (of `metric`), gap, gap_low, gap_high, n, unit (of
    the gap's interval), flops (training FLOPs over the baseline's), energy of training over the
    baseline's or, where most runs were not metered, hours (of a device) and disturbed (above 0
    where other work ran beside a seed), the metrics `beside`, state, reason; of value and metrics
    also `:low`, `:high`, `:n` and `:unit`. A baseline is ranked among the trials; its gap is 0 by
    definition. `table.attrs["cells"]` has (role, cell) of each
    row.

    Raises:
        UserError: no such metric, or none is given and nothing has been measured.
    """
    metric = metric or ranking_key(frame)
    if metric is None:
        raise UserError("nothing has been measured in this sweep yet, so no cell can be ranked")
    require_metric(frame, metric)
    ratios = {}
    if TRAIN_FLOPS in frame:
        frame = frame.assign(**{OF_DENSE: _of_dense(frame, TRAIN_FLOPS)})
        ratios["flops"] = OF_DENSE
    if (found := spent(frame)) is not None:
        name, column = SPENT[found[0]][0], f"{found[0]}_of_dense"
        frame = frame.assign(**{found[0]: found[1]})
        frame = frame.assign(**{column: _of_dense(frame, found[0])})
        ratios[name] = column
        if found[0] == DEVICE_HOURS:
            frame = frame.assign(**{BUSY: disturbed(frame, DEVICE_HOURS).astype(float)})
            ratios["disturbed"] = BUSY
    cells = ranked_cells(frame, metric)
    done = cells["state"] == "completed"
    table = cells[["route", *other_axes(frame)]].copy()
    if table.duplicated().any():
        table.insert(0, "cell", cells["cell"])
    table.insert(0, "rank", cells["rank"])
    columns = {"value": metric, "gap": gap, "gap_low": gap + LOW, "gap_high": gap + HIGH}
    columns |= {"n": gap + COUNT, "unit": gap + UNIT, **ratios}
    columns |= {name: name for other in beside for name in (other, *map(other.__add__, ENDS))}
    columns |= {f"value{end}": metric + end for end in ENDS}
    measured = cells[done].reindex(cells.index)  # of others, nothing
    numbers = {
        name: (cells if name in ("n", "unit") else measured)[column]
        for name, column in columns.items()
        if column in cells
    }
    parts = [table, pd.DataFrame(numbers), cells[["state", "reason"]]]
    table = pd.concat(parts, axis=1).reset_index(drop=True)
    table.attrs["cells"] = list(zip(cells["role"], cells["cell"]))
    return table


def formatted(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the ranking as people read it: texts only, a number with its interval in one column.

    `interval over` says what the intervals of a row are over, each where they differ.
    """
    texts = pd.DataFrame(
        {"rank": table["rank"].map(lambda rank: "" if pd.isna(rank) else str(rank))}
    )
    over: dict[str, Sequence[str]] = {}
    for column in table.columns[1:]:
        known = {"value": metric, "gap": GAP_HELDOUT}.get(column, column)
        if head := RATIOS.get(column):
            texts[head] = table[column].map(lambda x: "" if pd.isna(x) else ratio(x))
            if column == "hours":
                texts[head] += np.where(table["disturbed"] > 0, " (disturbed)", "")
        elif column != known or (("@" in column or "/" in column) and ":" not in column):
            name = "gap" if known == GAP_HELDOUT else known
            low, high, n, unit = _ends(table, column)
            texts[name] = metric_numbers(known, table[column], low, high)
            over[name] = [o * (t != "") for o, t in zip(over_texts(known, n, unit), texts[name])]
        elif column not in NOT_SHOWN and ":" not in column:
            texts[column] = table[column].map(lambda x: "" if pd.isna(x) else str(x))
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


def to_latex(texts: pd.DataFrame) -> str:
    """Return a table of texts as a booktabs tabular."""
    head = " & ".join(map(_latex, texts.columns))
    body = [" & ".join(map(_latex, row)) + r" \\" for row in texts.astype(str).to_numpy().tolist()]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(texts.columns)}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _of_dense(frame: pd.DataFrame, cost: str) -> pd.Series[float]:
    """Return the cost of each trial over that of its own baseline; 1 for a baseline."""
    ratio = frame[cost] / of_baseline(frame, cost)
    return ratio.where(frame["role"] == "trial", frame[cost] / frame[cost])


def _ends(table: pd.DataFrame, column: str) -> list[pd.Series[Any]]:
    """Return the columns of low, high, n and unit beside a number; NaN where there are none."""
    names = GAP_ENDS if column == "gap" else [column + end for end in ENDS]
    return [table.get(name, pd.Series(np.nan, index=table.index)) for name in names]


def _over(texts: Mapping[str, str]) -> str:
    """Return `3 seeds`, or `gap: 2 seeds, heldout/loss: 3 seeds` where they differ."""
    known = {name: text for name, text in texts.items() if text}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), "")
    return ", ".join(f"{name}: {text}" for name, text in known.items())


def _latex(text: str) -> str:
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", text.translate(_LATEX).replace("->", r"$\to$"))


_LATEX = str.maketrans(
    {
        **{plain: "\\" + plain for plain in "&%_#${}"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "\n": " ",
        "\N{MINUS SIGN}": "$-$",
        "\N{PLUS-MINUS SIGN}": r"$\pm$",
    }
)
