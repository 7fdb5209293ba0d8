"""The ranking as a table: columns, rows that an expression keeps, any order, as CSV and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tread_lab.analysis.figures.kind import quality_metrics
from tread_lab.analysis.figures.placements import other_axes
from tread_lab.analysis.report.page import sheet
from tread_lab.analysis.tables.ranking import formatted, ranking, to_latex
from tread_lab.dashboards.cell_map import Tree, cell_numbers, settled
from tread_lab.dashboards.views import choices
from tread_lab.frames import ranking_caption, ranking_key
from tread_lab.records.plan import StoredPlan
from tread_lab.specs.cell import CellNames, evaluate
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import cell_label

ROWS = 300  # of the page
BESIDE = 3  # metrics beside the ranking's own that are shown until others are chosen
FACTS = ("rank", "value", "gap", "gap_low", "gap_high", "n", "flops", "energy", "hours", "state")
SORTED_BY = {  # head of a column as people read it -> column with its numbers
    "interval over": "n",
    "FLOPs / dense": "flops",
    "energy / dense": "energy",
    "device-hours / dense": "hours",
}


@dataclass(frozen=True)
class RankingTable:
    """The ranking of a sweep, numbers beside texts.

    Attributes:
        metric: that cells are ranked by.
        numbers: rows of `ranking`.
        cells: (role, cell) of each row.
        hidden: columns that the report leaves out, as names or other columns tell them.
    """

    metric: str
    numbers: pd.DataFrame
    cells: pd.Series[Any]
    hidden: frozenset[str]

    @property
    def heads(self) -> list[str]:
        return list(map(str, self.texts(1)))

    def texts(self, most: int | None = None) -> pd.DataFrame:
        """Return the first rows, all by default, as people read them."""
        return formatted(self.numbers[:most], self.metric)

    def shown(self, texts: pd.DataFrame) -> list[str]:
        """Return the columns of texts that the report shows, less what names and caption tell."""
        hidden = self.hidden | ({"interval over"} if len(_over(texts)) == 1 else set())
        return [str(head) for head in texts if head not in hidden]

    @staticmethod
    def of(frame: pd.DataFrame, metric: str = "") -> RankingTable:
        """Return the ranking by a metric, the `ranking_key` where there is no such metric.

        Raises:
            UserError: nothing has been measured yet.
        """
        frame = settled(frame)
        key = metric if metric in choices(frame) else ranking_key(frame)
        first = [m for m in quality_metrics(frame) if m != key][:BESIDE]
        others = [m for m in choices(frame) if m not in (key, "gap/heldout")]
        numbers = ranking(frame, key, beside=list(dict.fromkeys([*first, *others])))
        pairs = numbers.attrs.pop("cells")  # pandas copies attributes at every step
        told = {"cell", "route", *other_axes(frame)}  # by the name of a cell
        done = (numbers["state"] == "completed") & (numbers["reason"] == "")
        hidden = frozenset(told | set(others) - set(first) | ({"state"} if done.all() else set()))
        return RankingTable(str(key), numbers, pd.Series(pairs, index=numbers.index), hidden)

    def kept(self, plan: StoredPlan, where: str) -> RankingTable:
        """Return the rows for which an expression holds; baselines always stay.

        Raises:
            UserError: the expression holds of no trial because it can be evaluated for none.
        """
        if not where.strip():
            return self
        trials = {(t.role, cell_label(t)): t for t in reversed(plan.trials)}
        known = [name for name in FACTS if name in self.numbers]
        keep, problem = [], None
        for pair, row in zip(self.cells, self.numbers[known].to_dict("records")):
            trial = trials[pair]
            try:
                names = CellNames(trial.spec, trial.cell, _facts(row))
                keep.append(trial.role == "baseline" or bool(evaluate(where, names)))
            except UserError as error:
                keep.append(False)
                problem = problem or error
        roles = [role for role, _ in self.cells]
        if problem is not None and not any(k and r == "trial" for k, r in zip(keep, roles)):
            raise problem
        return self._rows(self.cells.index[keep])

    def ordered(self, sort: str) -> RankingTable:
        """Return the rows sorted by a column, from above for `-column`; empty ones come last."""
        head = sort.removeprefix("-")
        if not head or head not in self.heads:
            return self
        column = SORTED_BY.get(head, "value" if head == self.metric else head)
        keys = self.numbers[column if column in self.numbers else "rank"]
        known = sorted(keys.dropna().index, key=lambda k: _natural(keys[k]), reverse=sort[0] == "-")
        return self._rows([*known, *keys.index[keys.isna()]])

    def tree(self, frame: pd.DataFrame, comparison: str) -> Tree:
        """Return what the page shows."""
        place, texts = cell_numbers(frame), self.texts(ROWS)
        seen, shown, over = sheet(texts, ROWS), self.shown(texts), _over(texts)
        said = f"; \N{PLUS-MINUS SIGN}: 95% interval over {over.pop()}" if len(over) == 1 else ""
        return {
            "caption": ranking_caption(self.metric, comparison) + said,
            "heads": seen.heads,
            "keys": seen.heads,
            "numeric": seen.numeric,
            "shown": [head in shown for head in seen.heads],
            "cells": [place[pair] for pair in self.cells],
            "rows": seen.rows,
        }

    def csv(self) -> str:
        """Return all columns with their whole numbers."""
        return str(self.numbers.to_csv(index=False))

    def latex(self, columns: str) -> str:
        """Return the columns named in a comma-separated list, else those that the report shows."""
        texts = self.texts()
        named = [head for head in texts if f",{head}," in f",{columns},"]  # a name may hold commas
        return to_latex(texts[named or self.shown(texts)])

    def _rows(self, index: Any) -> RankingTable:
        parts = (self.numbers.loc[index], self.cells.loc[index])
        return RankingTable(self.metric, *parts, self.hidden)


def _over(texts: pd.DataFrame) -> set[str]:
    """Return what the intervals of some rows are over."""
    return set(texts.get("interval over", ())) - {""}


def ranking_table(
    plan: StoredPlan,
    frame: pd.DataFrame,
    metric: str = "",
    where: str = "",
    sort: str = "",
    question: str = "",
) -> RankingTable:
    """Return the rows of a ranking that a page asks for; the frame answers the question already."""
    return RankingTable.of(frame, metric).kept(plan, where).ordered(sort)


def _natural(value: Any) -> list[tuple[bool, float, str]]:
    """Return what orders numbers by size, and texts with their numbers by size."""
    parts = re.findall(r"\d+(?:\.\d+)?|[^\d]+", value) if isinstance(value, str) else [value]
    numbers = [not isinstance(part, str) or part[0].isdigit() for part in parts]
    return [
        (not number, float(part) if number else 0.0, "" if number else part)
        for number, part in zip(numbers, parts)
    ]


def _facts(row: Mapping[Any, Any]) -> Tree:
    return {str(name): float("nan") if value is pd.NA else value for name, value in row.items()}
