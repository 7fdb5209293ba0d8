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
from tread_lab.compare.intervals import pairing_kept
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    delta_column,
    equal_steps_frame,
    require_metric,
    tied_with_best,
    trials_frame,
    with_delta,
)
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
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
        values_SK: the metric's difference to the baseline times `sign`, so that lower is better.
        sign: -1 for a metric of which more is better.
        flops_K: executed training FLOPs.
        cells_K: the name of each cell.
        runs_K: the run of the first seed.
        unfinished: placements left out because a seed of theirs has no number.
        rows: the trials of these placements.
    """

    depth: int
    places: tuple[tuple[int, int, float], ...]
    values_SK: Array
    sign: float
    flops_K: Array
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
        pairing: variance over seeds that pairing with the baseline leaves, as a share.
    """

    table: Table
    members_K: Flags
    chosen: int
    ranks: Ranks | None
    gap: PairedGap
    worse: bool
    runner_up: int
    seeds: int | None
    pairing: float | None


@dataclass(frozen=True)
class Recommendation:
    """A rule, the evidence at every depth, and what it amounts to.

    `dense`: at every depth the placement is worse than dense training, so no route is recommended.
    `established`: three seeds or more, alone in the best set at every depth. `undecided`: others
    cannot be distinguished from it. `insufficient`: fewer than three seeds, so nothing is claimed.
    `comparison` is its question, such as `at equal training FLOPs`.
    """

    sweep: str
    metric: str
    rule: Rule
    evidence: tuple[Evidence, ...]
    verdict: Verdict
    comparison: str = ""


def recommend(
    lab: Lab,
    sweep: str,
    *,
    metric: str = metric_names.GAP_HELDOUT,
    cheapest: bool = False,
    equal_steps: bool = False,
) -> Recommendation:
    """Return the rule that a placement sweep supports.

    Args:
        metric: what decides, as a difference to the dense baseline of the same seed.
        cheapest: take the member of the best set with the fewest training FLOPs instead of the
            one with the best mean, unless it is worse than dense.
        equal_steps: whether the rule is for a number of steps although the sweep matches costs: its
            runs are taken at the step at which their baseline ends.

    Raises:
        UserError: the sweep varies something else, fewer than two placements are measured, or what
            one costs is unknown where the cheapest is asked for.
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
    tables = tables_of(frame, depths, metric)
    if cheapest and any(np.isnan(table.flops_K).any() for table in tables):
        raise UserError("--cheapest: the training FLOPs of some placements are unknown")
    sets = [_best_set(lab, frame, table, metric) for table in tables]
    for prefer_cheap in (True, False) if cheapest else (False,):
        rule = best_rule(tables, sets, cheapest=prefer_cheap)
        evidence = tuple(
            _evidence(frame, table, members_K, table.places.index(rule.at(table.depth)), metric)
            for table, members_K in zip(tables, sets)
        )
        if (verdict := _verdict(evidence)) != "dense":
            break
    question = str(frame.attrs.get("comparison", ""))
    return Recommendation(folder.name, metric, rule, evidence, verdict, question)


def _best_set(lab: Lab, frame: pd.DataFrame, table: Table, metric: str) -> Flags:
    """Return which placements the answer of a report, too, does not tell from the best one."""
    if len(table.values_SK) < 2 and metric != metric_names.GAP_HELDOUT:
        raise UserError(f"one seed does not say how {metric} spreads; add seeds to the sweep")
    cells = [table.cells_K[k] for k in table.order]
    tied = tied_with_best(lab, with_delta(frame, metric), cells, delta_column(metric))
    return np.isin(table.cells_K, [cells[0], *tied])


def _gap(table: Table, k: int) -> PairedGap:
    """Return a placement's difference to its baseline, over seeds, else over images."""
    if len(table.values_SK) > 1:
        return gap_over_seeds(table.sign * table.values_SK[:, k])
    rows = table.rows[table.rows["run"] == table.runs_K[k]]
    mean, low, high, n = (
        float(rows[metric_names.GAP_HELDOUT + end].iloc[0]) for end in ("", LOW, HIGH, COUNT)
    )
    return PairedGap(mean, low, high, int(n), "images")


def _evidence(
    frame: pd.DataFrame,
    table: Table,
    members_K: Flags,
    chosen: int,
    metric: str,
) -> Evidence:
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
        worse=gap.low > 0 if table.sign > 0 else gap.high < 0,
        runner_up=runner_up,
        seeds=seeds,
        pairing=_pairing(frame, table, metric) if several else None,
    )


def _pairing(frame: pd.DataFrame, table: Table, metric: str) -> float | None:
    """Return the share of a metric's variance over seeds that pairing leaves; of a gap its loss."""
    value = metric_names.HELDOUT_LOSS if metric == metric_names.GAP_HELDOUT else metric
    if value not in frame or value.startswith("gap/"):
        return None
    values = frame.drop_duplicates("run").set_index("run")[value].astype(float)
    rows = table.rows.assign(theirs=table.rows["baseline"].map(values))
    ours, theirs = (
        rows.pivot_table(index="seed", columns=PLACE, values=v) for v in (value, "theirs")
    )
    return pairing_kept(ours.to_numpy(), theirs.to_numpy())


def _verdict(evidence: tuple[Evidence, ...]) -> Verdict:
    if all(e.worse for e in evidence):
        return "dense"
    if any(len(e.table.values_SK) < FEWEST_SEEDS for e in evidence):
        return "insufficient"
    alone = all(e.members_K.sum() == 1 and e.members_K[e.chosen] for e in evidence)
    return "established" if alone else "undecided"


def tables_of(frame: pd.DataFrame, depths: Mapping[str, int], metric: str) -> list[Table]:
    """Return one table for each depth, of the sweep's single routes.

    Args:
        frame: rows of `trials_frame`.
        depths: run -> the depth of its network.

    Raises:
        UserError: no such metric, or no better by it, an axis that is no placement, fewer than two
            finished ones.
    """
    require_metric(frame, metric)
    if not metric_names.metric_kind(metric).sign:
        raise UserError(f"{metric} is no measure of quality, so no placement is best by it")
    rows = with_delta(frame, metric)
    rows = rows[(rows["role"] == "trial") & (rows["route"] != "dense")]
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
    cost = metric_names.TRAIN_FLOPS
    flops = first.reindex(columns=[cost])[cost].astype(float)
    cells, runs = (tuple(str(first.loc[at, name]) for at in places) for name in ("cell", "run"))
    sign = 1.0 if metric_names.lower_is_better(metric.removeprefix("delta/")) else -1.0
    return Table(
        depth,
        tuple(places),
        sign * done.to_numpy(dtype=np.float64),
        sign,
        np.array([flops[place] for place in places]),
        cells,
        runs,
        len(first) - len(places),
        rows[pd.MultiIndex.from_frame(rows[PLACE]).isin(places)],
    )


# How a rule may write the start and the end of a route; the published form comes first.
_STARTS: tuple[_Form, ...] = (lambda at, _: at, lambda at, depth: f"{at}/{depth}")
_ENDS: tuple[_Form, ...] = (lambda at, depth: f"B-{depth - at}", *reversed(_STARTS))


def best_rule(tables: Sequence[Table], sets: Sequence[Flags], *, cheapest: bool) -> Rule:
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
    return min(measured, key=lambda rule: _cost_of(rule, tables, sets, cheapest=cheapest))


def _cost_of(
    rule: Rule, tables: Sequence[Table], sets: Sequence[Flags], *, cheapest: bool
) -> tuple[bool, float]:
    """Return what `best_rule` minimises, the mean over depths of the distance to the best mean.

    With `cheapest`, a rule inside every best set comes before all others and is compared by its
    share of the largest training FLOPs instead.
    """
    columns = [table.places.index(rule.at(table.depth)) for table in tables]
    if cheapest and all(members_K[k] for members_K, k in zip(sets, columns)):
        shares = [t.flops_K[k] / np.nanmax(t.flops_K) for t, k in zip(tables, columns)]
        return False, float(np.mean(shares))
    distances = [t.means_K[k] - t.means_K.min() for t, k in zip(tables, columns)]
    return True, float(np.mean(distances))
