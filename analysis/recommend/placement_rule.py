"""The placements of a sweep as tables, and the rule in the depth B that suits all of them best."""

# S seeds, K placements

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.compare.best_set import BestSet
from tread_lab.frames import delta_column, require_metric, with_delta
from tread_lab.records.metric_names import TRAIN_FLOPS, lower_is_better
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import ROUTE_AXES
from tread_lab.specs.routes import block_index

Array = NDArray[np.float64]
PLACE = ["start", "end", "rate"]
_Form = Callable[[int, int], int | str]  # of block and depth


@dataclass(frozen=True)
class Rule:
    """Ends of a route as they are written for any depth B, and the selection rate."""

    start: int | str
    end: int | str
    rate: float

    def at(self, depth: int) -> tuple[int, int, float]:
        """Return the placement that the rule means in a network of `depth` blocks."""
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
        rows: the trials of these placements.
    """

    depth: int
    places: tuple[tuple[int, int, float], ...]
    values_SK: Array
    sign: float
    flops_K: Array
    runs_K: tuple[str, ...]
    unfinished: int
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)


def tables_of(frame: pd.DataFrame, depths: Mapping[str, int], metric: str) -> list[Table]:
    """Return one table for each depth, of the sweep's single routes.

    Args:
        frame: rows of `trials_frame`.
        depths: run -> the depth of its network.

    Raises:
        UserError: no such metric, an axis that is no placement, fewer than two finished ones.
    """
    require_metric(frame, metric)
    other = [a for a in frame.attrs["axes"] if a not in ROUTE_AXES and not a.startswith("model.")]
    varied = [axis for axis in other if frame[axis].nunique() > 1]
    if varied:
        raise UserError(f"the sweep also varies {varied[0]}; a rule needs placements alone")
    rows = with_delta(frame, metric)
    rows = rows[(rows["role"] == "trial") & (rows["route"] != "dense")]
    rows = rows[~rows["route"].str.contains("+", regex=False)].drop_duplicates("run")
    rows = rows.assign(depth=rows["run"].map(depths))
    again = rows[rows.duplicated(["depth", "seed", *PLACE])]
    if not again.empty:
        cell = again["cell"].iloc[0]
        raise UserError(
            f"{cell} is not the only cell of its placement; a rule needs placements alone"
        )
    parts = rows.groupby("depth", sort=False)
    tables = [_table(int(str(depth)), part, metric) for depth, part in parts]
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
    flops = first.reindex(columns=[TRAIN_FLOPS])[TRAIN_FLOPS].astype(float)
    sign = 1.0 if lower_is_better(metric.removeprefix("delta/")) else -1.0
    return Table(
        depth,
        tuple(places),
        sign * done.to_numpy(dtype=np.float64),
        sign,
        np.array([flops[place] for place in places]),
        tuple(str(first.loc[place, "run"]) for place in places),
        len(first) - len(places),
        rows[pd.MultiIndex.from_frame(rows[PLACE]).isin(places)],
    )


def best_rule(tables: Sequence[Table], sets: Sequence[BestSet], *, cheapest: bool) -> Rule:
    """Return the rule whose placements lose least to the best of every depth.

    At one depth B-9 and a fixed fraction of the depth fit equally; then the published form is
    taken, the start from the first block and the end from the last (TREAD: i = 2, j = B - 4).
    """
    rules = _rules(tables)
    if not rules:
        raise UserError("no rule in the depth means a measured placement at every depth")
    return min(rules, key=lambda rule: _cost_of(rule, tables, sets, cheapest=cheapest))


# How a rule may write the start and the end of a route; the published form comes first.
_STARTS: tuple[_Form, ...] = (lambda at, _: at, lambda at, depth: f"{at}/{depth}")
_ENDS: tuple[_Form, ...] = (lambda at, depth: f"B-{depth - at}", *reversed(_STARTS))


def _rules(tables: Sequence[Table]) -> list[Rule]:
    """Return every rule that names a measured placement at each depth, preferred forms first."""
    candidates = (
        Rule(written_start(start, table.depth), written_end(end, table.depth), rate)
        for written_start, written_end in itertools.product(_STARTS, _ENDS)
        for table in tables
        for start, end, rate in table.places
    )
    return [
        rule
        for rule in dict.fromkeys(candidates)
        if all(rule.at(table.depth) in table.places for table in tables)
    ]


def _cost_of(
    rule: Rule, tables: Sequence[Table], sets: Sequence[BestSet], *, cheapest: bool
) -> tuple[bool, float]:
    """Return what `best_rule` minimises, the mean over depths of the distance to the best mean.

    With `cheapest`, a rule inside every best set comes before all others and is compared by its
    share of the largest training FLOPs instead.
    """
    columns = [table.places.index(rule.at(table.depth)) for table in tables]
    if cheapest and all(best.members_K[k] for best, k in zip(sets, columns)):
        shares = [t.flops_K[k] / np.nanmax(t.flops_K) for t, k in zip(tables, columns)]
        return False, float(np.mean(shares))
    distances = [best.means_K[k] - best.means_K.min() for best, k in zip(sets, columns)]
    return True, float(np.mean(distances))
