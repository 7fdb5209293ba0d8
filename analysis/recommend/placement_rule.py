"""The placements of a sweep as tables, and the rule in the depth B that suits all of them best."""

# S seeds, K placements

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.compare.best_set import BestSet
from tread_lab.frames import delta_column, require_metric, with_delta
from tread_lab.records import metric_names
from tread_lab.specs.errors import UserError
from tread_lab.specs.routes import block_index

Array = NDArray[np.float64]
PLACE = ["route_start", "route_end", "selection_rate"]
_AXES = ("start", "end", "route", "routes", "rate")  # and those of the model


@dataclass(frozen=True)
class Rule:
    """Ends of a route as they are written for any depth B, and the selection rate."""

    start: int | str
    end: int | str
    rate: float

    def at(self, depth: int) -> tuple[int, int, float]:
        """The placement that the rule means in a network of `depth` blocks."""
        return block_index(self.start, depth), block_index(self.end, depth), self.rate

    def __str__(self) -> str:
        return f"{self.start}->{self.end} at rate {self.rate:g}"


@dataclass(frozen=True)
class Table:
    """The finished placements of networks of one depth.

    Attributes:
        depth: B.
        places: (start, end, rate) of each column.
        values_SK: the metric's difference to the baseline times `sign`, so that lower is better.
        sign: -1 for a metric of which more is better.
        flops_K: executed training FLOPs.
        runs_K: the run of the first seed.
        unfinished: placements left out because a seed of theirs has no number.
    """

    depth: int
    places: tuple[tuple[int, int, float], ...]
    values_SK: Array
    sign: float
    flops_K: Array
    runs_K: tuple[str, ...]
    unfinished: int


def tables_of(frame: pd.DataFrame, depths: Mapping[str, int], metric: str) -> list[Table]:
    """One table for each depth, of the sweep's single routes.

    Args:
        frame: rows of `trials_frame`.
        depths: run -> the depth of its network.

    Raises:
        UserError: no such metric, an axis that is no placement, fewer than two finished ones.
    """
    require_metric(frame, metric)
    other = [a for a in frame.attrs["axes"] if a not in _AXES and not a.startswith("model.")]
    varied = [axis for axis in other if frame[axis].nunique() > 1]
    if varied:
        raise UserError(f"the sweep also varies {varied[0]}; a rule needs placements alone")
    rows = with_delta(frame, metric)
    rows = rows[(rows["role"] == "trial") & rows["route_start"].notna()]
    rows = rows[~rows["route"].str.contains("+", regex=False)].drop_duplicates("run")
    rows = rows.assign(depth=rows["run"].map(depths))
    tables = [
        _table(int(str(depth)), part, metric) for depth, part in rows.groupby("depth", sort=False)
    ]
    tables = [table for table in tables if len(table.places) > 1]
    if not tables:
        raise UserError("fewer than two placements are measured with every seed")
    return tables


def _table(depth: int, rows: pd.DataFrame, metric: str) -> Table:
    values = rows.pivot_table(
        index="seed", columns=PLACE, values=delta_column(metric), dropna=False, observed=True
    )
    done = values.loc[:, values.notna().all()]
    first = rows.drop_duplicates(PLACE).set_index(PLACE)
    places = [(int(at[0]), int(at[1]), float(at[2])) for at in done.columns.tolist()]
    flops = (
        first[metric_names.TRAIN_FLOPS].astype(float) if metric_names.TRAIN_FLOPS in first else None
    )
    sign = 1.0 if metric_names.lower_is_better(metric.removeprefix("delta/")) else -1.0
    return Table(
        depth,
        tuple(places),
        sign * done.to_numpy(dtype=np.float64),
        sign,
        np.array([np.nan if flops is None else flops[place] for place in places]),
        tuple(str(first.loc[place, "run"]) for place in places),
        len(first) - len(places),
    )


def best_rule(tables: Sequence[Table], sets: Sequence[BestSet], *, cheapest: bool) -> Rule:
    """The rule whose placements lose least to the best of every depth.

    One depth cannot tell a distance from the ends from a share of the depth; the form is then the
    published one, start from the first block and end from the last (TREAD: i = 2, j = B - 4).
    """
    rules = list(_rules(tables))
    if not rules:
        raise UserError("no rule in the depth means a measured placement at every depth")
    return min(rules, key=lambda rule: _loss(rule, tables, sets, cheapest=cheapest))


def _rules(tables: Sequence[Table]) -> Iterator[Rule]:
    """Every rule that means a measured placement at each depth, preferred forms first."""
    forms = itertools.product((0, 1), (0, 1, 2))
    seen = set()
    for (by_start, by_end), table in itertools.product(forms, tables):
        B = table.depth
        for start, end, rate in table.places:
            first = (start, f"{start}/{B}")[by_start]
            last = (f"B-{B - end}", f"{end}/{B}", end)[by_end]
            rule = Rule(first, last, rate)
            if rule not in seen and all(rule.at(t.depth) in t.places for t in tables):
                seen.add(rule)
                yield rule


def _loss(rule: Rule, tables: Sequence[Table], sets: Sequence[BestSet], *, cheapest: bool) -> float:
    """Mean distance to the best over depths; inside the sets FLOPs instead, where asked."""
    at = [table.places.index(rule.at(table.depth)) for table in tables]
    if cheapest and all(best.members_K[k] for best, k in zip(sets, at)):
        shares = [table.flops_K[k] / np.nanmax(table.flops_K) for table, k in zip(tables, at)]
        return float(np.mean(shares)) - 1e6
    return float(np.mean([best.means_K[k] - best.means_K.min() for best, k in zip(sets, at)]))
