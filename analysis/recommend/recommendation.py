"""From a placement sweep to a rule for routes in the depth B, and how sure it is."""

# S seeds, K placements

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.compare.best_set import Ranks, ranks, residual_deviation, seeds_needed
from tread_lab.compare.gaps import PairedGap, gap_over_seeds
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    equal_steps_frame,
    require_metric,
    tied_with_best,
    trials_frame,
)
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import ROUTE_AXES
from tread_lab.specs.routes import block_index

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
PLACE = ["start", "end", "rate"]
_Form = Callable[[int, int], int | str]  # of block and depth
Verdict = Literal["dense", "established", "undecided", "insufficient"]
FEWEST_SEEDS = 3  # for a claim


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
    """The finished placements of networks of one depth B.

    Attributes:
        places: (start, end, rate) of each column.
        values_SK: `gap/heldout`, the difference to the dense baseline of the same seed.
        cells_K: the name of each cell.
        runs_K: the run of the first seed.
        unfinished: placements left out because a seed of theirs has no number.
        rows: the trials of these placements.
    """

    depth: int
    places: tuple[tuple[int, int, float], ...]
    values_SK: Array
    cells_K: tuple[str, ...]
    runs_K: tuple[str, ...]
    unfinished: int
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def means_K(self) -> Array:
        """The mean over seeds of each placement."""
        return np.asarray(self.values_SK.mean(axis=0))

    @property
    def order(self) -> list[int]:
        """Placements from the best mean to the worst."""
        return [int(k) for k in np.argsort(self.means_K, kind="stable")]


@dataclass(frozen=True)
class Evidence:
    """What one table says of the placement that a rule means there.

    Attributes:
        members_K: the best set: the best placement and those that cannot be distinguished from it.
        chosen, runner_up: column of the rule's placement, and the next one in order of means.
        ranks: how firm the order is; `None` for one seed.
        gap: the chosen placement's difference to the baseline; over `images`, as the best set is
            then, it speaks of one trained run each.
        worse: whether all of that gap's interval is worse than the baseline.
        seeds: how many would separate the two; `None` above 200.
    """

    table: Table
    members_K: Flags
    chosen: int
    ranks: Ranks | None
    gap: PairedGap
    worse: bool
    runner_up: int
    seeds: int | None


@dataclass(frozen=True)
class Recommendation:
    """A rule, the evidence at every depth, and what it amounts to.

    `dense`: at every depth the placement is worse than dense training, so no route is recommended.
    `established`: three seeds or more, alone in the best set at every depth. `undecided`: others
    cannot be distinguished from it. `insufficient`: fewer than three seeds, so nothing is claimed.
    `comparison` is its question, such as `at equal training FLOPs`.
    """

    sweep: str
    rule: Rule
    evidence: tuple[Evidence, ...]
    verdict: Verdict
    comparison: str = ""


def recommend(lab: Lab, sweep: str, *, equal_steps: bool = False) -> Recommendation:
    """Return the rule that the held-out gaps of a placement sweep support.

    Args:
        equal_steps: whether the rule is for a number of steps although the sweep matches costs: its
            runs are taken at the step at which their baseline ends.

    Raises:
        UserError: the sweep varies something else, or fewer than two placements are measured.
    """
    folder = lab.known_sweep(sweep)
    frame, plan = trials_frame(lab, folder), folder.plan()
    if equal_steps and plan.match is not None:
        stages = equal_steps_frame(lab, folder)
        if stages is None:
            raise UserError(
                "--equal-steps: no run was measured `at baseline` under a constant rate"
            )
        frame = stages
    depths = {trial.run: trial.spec["model"]["depth"] for trial in plan.trials}
    tables = tables_of(frame, depths)
    rule = best_rule(tables)
    evidence = tuple(
        _evidence(table, _best_set(lab, frame, table), table.places.index(rule.at(table.depth)))
        for table in tables
    )
    question = str(frame.attrs.get("comparison", ""))
    return Recommendation(folder.name, rule, evidence, _verdict(evidence), question)


def _best_set(lab: Lab, frame: pd.DataFrame, table: Table) -> Flags:
    """Return which placements the answer of a report, too, does not tell from the best one."""
    cells = [table.cells_K[k] for k in table.order]
    return np.isin(table.cells_K, [cells[0], *tied_with_best(lab, frame, cells, GAP_HELDOUT)])


def _gap(table: Table, k: int) -> PairedGap:
    """Return a placement's difference to its baseline, over seeds, else over images."""
    if len(table.values_SK) > 1:
        return gap_over_seeds(table.values_SK[:, k])
    rows = table.rows[table.rows["run"] == table.runs_K[k]]
    mean, low, high, n = (float(rows[GAP_HELDOUT + end].iloc[0]) for end in ("", LOW, HIGH, COUNT))
    return PairedGap(mean, low, high, int(n), "images")


def _evidence(table: Table, members_K: Flags, chosen: int) -> Evidence:
    several, gap = len(table.values_SK) > 1, _gap(table, chosen)
    runner_up = next(k for k in table.order if k != chosen)
    apart = abs(float(table.means_K[runner_up] - table.means_K[chosen]))
    seeds = None
    if several:
        deviation = residual_deviation(table.values_SK)
        seeds = seeds_needed(apart, deviation, cells=len(table.places))
    return Evidence(
        table=table,
        members_K=members_K,
        chosen=chosen,
        ranks=ranks(table.values_SK) if several else None,
        gap=gap,
        worse=gap.low > 0,
        runner_up=runner_up,
        seeds=seeds,
    )


def _verdict(evidence: tuple[Evidence, ...]) -> Verdict:
    if all(e.worse for e in evidence):
        return "dense"
    if any(len(e.table.values_SK) < FEWEST_SEEDS for e in evidence):
        return "insufficient"
    alone = all(e.members_K.sum() == 1 and e.members_K[e.chosen] for e in evidence)
    return "established" if alone else "undecided"


def tables_of(frame: pd.DataFrame, depths: Mapping[str, int]) -> list[Table]:
    """Return one table for each depth, of the sweep's single routes.

    Args:
        frame: rows of `trials_frame`.
        depths: run -> the depth of its network.

    Raises:
        UserError: no held-out gap, an axis that is no placement, fewer than two finished ones.
    """
    require_metric(frame, GAP_HELDOUT)
    rows = frame[(frame["role"] == "trial") & (frame["route"] != "dense")]
    other = [a for a in frame.attrs["axes"] if a not in ROUTE_AXES and not a.startswith("model.")]
    varied = [axis for axis in other if rows[axis].nunique(dropna=False) > 1]
    if varied:
        raise UserError(f"the sweep also varies {varied[0]}; a rule needs placements alone")
    rows = rows[~rows["route"].str.contains("+", regex=False)].drop_duplicates("run")
    rows = rows.assign(depth=rows["run"].map(depths))
    again = rows[rows.duplicated(["depth", "seed", *PLACE])]
    if not again.empty:
        cell = again["cell"].iloc[0]
        raise UserError(
            f"{cell} is not the only cell of its placement; a rule needs placements alone"
        )
    parts = rows.groupby("depth", sort=False)
    tables = [_table(int(str(depth)), part) for depth, part in parts]
    tables = [table for table in tables if len(table.places) > 1]
    if not tables:
        raise UserError("fewer than two placements are measured with every seed")
    return tables


def _table(depth: int, rows: pd.DataFrame) -> Table:
    values = rows.pivot_table(
        index="seed", columns=PLACE, values=GAP_HELDOUT, dropna=False, observed=True
    )
    done = values.loc[:, values.notna().all()]
    first = rows.drop_duplicates(PLACE).set_index(PLACE)
    places = [(int(at[0]), int(at[1]), float(at[2])) for at in done.columns.tolist()]
    cells, runs = (tuple(str(first.loc[at, name]) for at in places) for name in ("cell", "run"))
    return Table(
        depth,
        tuple(places),
        done.to_numpy(dtype=np.float64),
        cells,
        runs,
        len(first) - len(places),
        rows[pd.MultiIndex.from_frame(rows[PLACE]).isin(places)],
    )


# How a rule may write the start and the end of a route; the published form comes first.
_STARTS: tuple[_Form, ...] = (lambda at, _: at, lambda at, depth: f"{at}/{depth}")
_ENDS: tuple[_Form, ...] = (lambda at, depth: f"B-{depth - at}", *reversed(_STARTS))


def best_rule(tables: Sequence[Table]) -> Rule:
    """Return the rule whose placements lose least to the best of every depth.

    At one depth B-9 and a fixed fraction of the depth fit equally; then the published form is
    taken, the start from the first block and the end from the last (TREAD: i = 2, j = B - 4).
    """
    candidates = (
        Rule(written_start(start, table.depth), written_end(end, table.depth), rate)
        for written_start, written_end in itertools.product(_STARTS, _ENDS)
        for table in tables
        for start, end, rate in table.places
    )
    measured = [
        rule
        for rule in dict.fromkeys(candidates)
        if all(rule.at(table.depth) in table.places for table in tables)
    ]
    if not measured:
        raise UserError("no rule in the depth means a measured placement at every depth")

    def distance(rule: Rule) -> float:
        columns = [table.places.index(rule.at(table.depth)) for table in tables]
        lost = [t.means_K[k] - t.means_K.min() for t, k in zip(tables, columns)]
        return float(np.mean(lost))

    return min(measured, key=distance)
