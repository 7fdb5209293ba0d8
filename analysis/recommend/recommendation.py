"""From a placement sweep to a rule for routes in the depth B, and how sure it is."""

# S seeds, K placements

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.compare.best_set import Ranks, ranks, residual_deviation, seeds_needed
from tread_lab.compare.gaps import PairedGap
from tread_lab.frames import (
    COUNT,
    HIGH,
    LOW,
    UNIT,
    cells_frame,
    equal_steps_frame,
    require_metric,
    tied_with_best,
    trials_frame,
    with_metrics,
)
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.specs.errors import UserError
from tread_lab.specs.labels import ROUTE_AXES
from tread_lab.specs.routes import block_index

Array = NDArray[np.float64]
Place = tuple[int, int, float]  # start, end, rate
PLACE = ["start", "end", "rate"]
GAP_COLUMNS = [GAP_HELDOUT + end for end in ("", LOW, HIGH, COUNT, UNIT)]
_Form = Callable[[int, int], int | str]  # of block and depth
Verdict = Literal["dense", "established", "undecided", "insufficient"]
FEWEST_SEEDS = 3  # for a claim


@dataclass(frozen=True)
class Rule:
    """Ends of a route as they are written for any depth B, and the selection rate."""

    start: int | str
    end: int | str
    rate: float

    def at(self, depth: int) -> Place:
        """Return the placement that the rule means in a network of `depth` blocks."""
        return block_index(self.start, depth), block_index(self.end, depth), self.rate

    def __str__(self) -> str:
        return f"{self.start}->{self.end} at rate {self.rate:g}"


@dataclass(frozen=True)
class Evidence:
    """The finished placements of networks of one depth B.

    Attributes:
        cells: their rows of `cells_frame`, the best mean first; each also has the `run` of its
            first seed, and `best`, whether it cannot be distinguished from the first. An interval
            over images speaks of one trained run each.
        values_SK: `gap/heldout`, the difference to the dense baseline of the same seed.
        unfinished: placements left out because a seed of theirs has no number.
        chosen: the number of the one that the rule means.
    """

    depth: int
    cells: pd.DataFrame
    values_SK: Array
    unfinished: int = 0
    chosen: int = 0

    @property
    def places(self) -> list[Place]:
        """(start, end, rate) of each placement."""
        return [(int(start), int(end), float(s)) for start, end, s in self.cells[PLACE].to_numpy()]

    @property
    def gap(self) -> PairedGap:
        """The chosen placement's difference to its baseline, over seeds, else over images."""
        return PairedGap(*self.cells[GAP_COLUMNS].iloc[self.chosen])

    @property
    def runner_up(self) -> int:
        """The number of the best of the other placements."""
        return 0 if self.chosen else 1

    @cached_property
    def ranks(self) -> Ranks | None:
        """How firm the order is; `None` for one seed."""
        return ranks(self.values_SK) if len(self.values_SK) > 1 else None

    @property
    def seeds_needed(self) -> int | None:
        """How many seeds would separate the two; `None` for one seed, and above 200."""
        if len(self.values_SK) < 2:
            return None
        means = self.cells[GAP_HELDOUT].to_numpy()
        apart = abs(float(means[self.runner_up] - means[self.chosen]))
        return seeds_needed(apart, residual_deviation(self.values_SK), cells=len(means))


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
    measured = evidence_of(lab, frame, depths)
    rule = best_rule(measured)
    evidence = tuple(replace(e, chosen=e.places.index(rule.at(e.depth))) for e in measured)
    question = str(frame.attrs.get("comparison", ""))
    return Recommendation(folder.name, rule, evidence, _verdict(evidence), question)


def _verdict(evidence: Sequence[Evidence]) -> Verdict:
    if all(e.gap.low > 0 for e in evidence):
        return "dense"
    if any(len(e.values_SK) < FEWEST_SEEDS for e in evidence):
        return "insufficient"
    alone = all(e.cells["best"].sum() == 1 and e.chosen == 0 for e in evidence)
    return "established" if alone else "undecided"


def evidence_of(lab: Lab, frame: pd.DataFrame, depths: Mapping[str, int]) -> list[Evidence]:
    """Return the placements of each depth, of the sweep's single routes.

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
    parts = ((int(str(depth)), part) for depth, part in rows.groupby("depth", sort=False))
    evidence = [_evidence(lab, frame, depth, part) for depth, part in parts]
    evidence = [e for e in evidence if len(e.cells) > 1]
    if not evidence:
        raise UserError("fewer than two placements are measured with every seed")
    return evidence


def _evidence(lab: Lab, frame: pd.DataFrame, depth: int, rows: pd.DataFrame) -> Evidence:
    values = rows.groupby(["seed", "cell"])[GAP_HELDOUT].first().unstack("cell")
    planned = cells_frame(with_metrics(rows, GAP_HELDOUT)).sort_values([GAP_HELDOUT, *PLACE])
    cells = planned[planned["cell"].map(values.notna().all())]
    names, runs = cells["cell"].tolist(), rows.drop_duplicates("cell").set_index("cell")["run"]
    # as the answer of a report, too, does not tell them from the first
    best = {*names[:1], *tied_with_best(lab, frame, names, GAP_HELDOUT)}
    cells = cells.assign(run=runs.loc[names].array, best=cells["cell"].isin(best))
    return Evidence(depth, cells, values[names].to_numpy(float), len(planned) - len(cells))


# How a rule may write the start and the end of a route; the published form comes first.
_STARTS: tuple[_Form, ...] = (lambda at, _: at, lambda at, depth: f"{at}/{depth}")
_ENDS: tuple[_Form, ...] = (lambda at, depth: f"B-{depth - at}", *reversed(_STARTS))


def best_rule(evidence: Sequence[Evidence]) -> Rule:
    """Return the rule whose placements lose least to the best of every depth.

    At one depth B-9 and a fixed fraction of the depth fit equally; then the published form is
    taken, the start from the first block and the end from the last (TREAD: i = 2, j = B - 4).
    """
    gaps = ((e, e.cells[GAP_HELDOUT]) for e in evidence)
    lost = {e.depth: dict(zip(e.places, gap - gap.min())) for e, gap in gaps}
    candidates = (
        Rule(written_start(start, depth), written_end(end, depth), rate)
        for written_start, written_end in itertools.product(_STARTS, _ENDS)
        for depth, places in lost.items()
        for start, end, rate in places
    )
    measured = [
        rule
        for rule in dict.fromkeys(candidates)
        if all(rule.at(depth) in places for depth, places in lost.items())
    ]
    if not measured:
        raise UserError("no rule in the depth means a measured placement at every depth")
    return min(measured, key=lambda rule: sum(lost[depth][rule.at(depth)] for depth in lost))
