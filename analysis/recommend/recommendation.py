"""From a placement sweep to a rule for routes, and how sure it is."""

# S seeds, M images

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.recommend.placement_rule import PLACE, Rule, Table, best_rule, tables_of
from tread_lab.compare.best_set import (
    BestSet,
    Ranks,
    best_over_images,
    best_over_seeds,
    ranks,
    seeds_needed,
)
from tread_lab.compare.gaps import (
    Losses,
    PairedGap,
    common_evaluation,
    gap_over_images,
    gap_over_seeds,
    losses_paths,
)
from tread_lab.compare.intervals import pairing_kept
from tread_lab.frames import equal_steps_frame, trials_frame
from tread_lab.records import metric_names
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError

Array = NDArray[np.float64]
Verdict = Literal["dense", "established", "undecided", "insufficient"]
FEWEST_SEEDS = 3  # for a claim


@dataclass(frozen=True)
class Evidence:
    """What one table says of the placement that a rule means there.

    Attributes:
        table, best: the placements, and the set that cannot be distinguished from the best.
        chosen: column of the rule's placement.
        ranks: how firm the order is; `None` for one seed.
        gap: the chosen placement's difference to the baseline; over `images`, as the best set is
            then, it speaks of one trained run each.
        worse: whether all of that gap's interval is worse than the baseline.
        runner_up: the next placement, in order of means.
        seeds: how many would separate the chosen placement from that one; `None` above 200.
        pairing: variance over seeds that pairing with the baseline leaves, as a share.
    """

    table: Table
    best: BestSet
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
    `comparison` is the question that it answers, such as `at equal training FLOPs`.
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
        cheapest: of the placements that cannot be distinguished from the best, take the one with
            the fewest training FLOPs instead of the one with the best mean, unless it is worse
            than dense.
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
    tables = tables_of(frame, depths, metric)
    sets = [_best(lab, frame, table, metric) for table in tables]
    for prefer_cheap in (True, False) if cheapest else (False,):
        rule = best_rule(tables, sets, cheapest=prefer_cheap)
        evidence = tuple(
            _evidence(lab, frame, table, best, table.places.index(rule.at(table.depth)), metric)
            for table, best in zip(tables, sets)
        )
        if (verdict := _verdict(evidence)) != "dense":
            break
    comparison = str(frame.attrs.get("comparison", ""))
    return Recommendation(folder.name, metric, rule, evidence, verdict, comparison)


def _best(lab: Lab, frame: pd.DataFrame, table: Table, metric: str) -> BestSet:
    if len(table.values_SK) > 1:
        return best_over_seeds(table.values_SK)
    if metric != metric_names.GAP_HELDOUT:
        raise UserError(f"one seed does not say how {metric} spreads; add seeds to the sweep")
    return best_over_images(_image_gaps(lab, frame, table.runs_K))


def _image_gaps(lab: Lab, frame: pd.DataFrame, runs_K: Sequence[str]) -> Array:
    """Return [K, M], dense losses less the baseline's, image by image, all of one evaluation."""
    baselines = frame.drop_duplicates("run").set_index("run")["baseline"]
    at_step = frame.attrs.get("at_step", {})
    ours, theirs = (
        [losses_paths(lab.run(str(run)), at_step.get(run)) for run in runs]
        for runs in (runs_K, [baselines[run] for run in runs_K])
    )
    first = common_evaluation([*ours, *theirs], frame.attrs.get("evaluations", ()))
    if first is None:
        raise UserError("no held-out evaluation is common to all cells; `tread-lab evaluate` one")
    a, b = ([Losses.read(paths[first]).dense.mean(1) for paths in side] for side in (ours, theirs))
    gaps: Array = np.asarray(a) - np.asarray(b)
    return gaps


def _evidence(
    lab: Lab, frame: pd.DataFrame, table: Table, best: BestSet, chosen: int, metric: str
) -> Evidence:
    several = len(table.values_SK) > 1
    runner_up = next(k for k in best.order if k != chosen)
    apart = abs(float(best.means_K[runner_up] - best.means_K[chosen]))
    needed = seeds_needed(apart, best.deviation, cells=len(table.places)) if several else None
    gap = _gap(lab, frame, table, chosen)
    return Evidence(
        table=table,
        best=best,
        chosen=chosen,
        ranks=ranks(table.values_SK) if several else None,
        gap=gap,
        worse=gap.low > 0 if table.sign > 0 else gap.high < 0,
        runner_up=runner_up,
        seeds=needed,
        pairing=_pairing(frame, table, metric) if several else None,
    )


def _gap(lab: Lab, frame: pd.DataFrame, table: Table, chosen: int) -> PairedGap:
    """Return the chosen placement against its baseline, over seeds, else over images."""
    if len(table.values_SK) > 1:
        return gap_over_seeds([float(v) for v in table.sign * table.values_SK[:, chosen]])
    gap_M = _image_gaps(lab, frame, table.runs_K)[chosen]
    return gap_over_images(gap_M[:, None], np.zeros((len(gap_M), 1)))


def _pairing(frame: pd.DataFrame, table: Table, metric: str) -> float | None:
    """Return the share of a metric's variance over seeds that pairing leaves; of a gap its loss."""
    of_gap = metric == metric_names.GAP_HELDOUT
    value = metric_names.HELDOUT_LOSS if of_gap else metric
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
    alone = all(e.best.size == 1 and e.best.members_K[e.chosen] for e in evidence)
    return "established" if alone else "undecided"
