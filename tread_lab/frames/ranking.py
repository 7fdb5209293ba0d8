"""The ranking of cells: by what, in which order, and which of them have no baseline's result."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from tread_lab.compare.gaps import (
    Losses,
    PairedGap,
    common_evaluation,
    gap_over_images,
    gap_over_seeds,
    losses_paths,
)
from tread_lab.frames.cells import cells_frame
from tread_lab.frames.columns import delta_column, own_metrics
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    GAP_ROUTE,
    HELDOUT_LOSS,
    lower_is_better,
    metric_kind,
)
from tread_lab.records.status import RunState, without_comparison
from tread_lab.specs.errors import UserError

RIVALS = 30  # the nearest cells that the best one is paired with


def ranking_key(frame: pd.DataFrame) -> str | None:
    """The metric that cells of `trials_frame`'s rows are ranked by, `None` before any is measured.

    The gap in held-out loss where all trials are compared with the same kind of baseline; held-out
    loss itself where there are several kinds, since a gap to another baseline is another scale; a
    metric of samples where neither was measured.
    """
    kinds = frame.loc[frame["role"] == "baseline", "cell"].nunique()
    first = (GAP_HELDOUT, HELDOUT_LOSS) if kinds == 1 else (HELDOUT_LOSS, GAP_HELDOUT)
    own = own_metrics(frame)
    samples = [column for column in own if "@" in column and ":" not in column]
    return next((c for c in (*first, *samples) if c in own and frame[c].notna().any()), None)


def ranking_caption(metric: str, comparison: str = "") -> str:
    """Return the caption of a ranking by `metric`, the same wherever a ranking is shown.

    Args:
        comparison: the question that differences answer, `frame.attrs["comparison"]`.
    """
    order = {1: "lower is better", -1: "higher is better", 0: "which is no measure of quality"}
    kind = order[metric_kind(metric).sign]
    question = f", {comparison}" if comparison else ""
    return f"ranked by {metric}, {kind}{question}; a row is a cell, its seeds averaged"


def ranked_cells(frame: pd.DataFrame, key: str | None) -> pd.DataFrame:
    """`cells_frame`, best first by `key`; a trial that is its baseline's own run is left out.

    `rank` counts from 1 where one value of the key is better than another; equal cells share one.
    Cells without a number follow in plan order.
    """
    own = (frame["role"] == "trial") & (frame["run"] == frame["baseline"])
    cells = cells_frame(frame[~own])
    return cells if key is None else best_first(cells, key)


def best_first(cells: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return rows of `cells_frame` as `ranked_cells` does; a baseline's differences to it are 0."""
    done = cells["state"] == RunState.COMPLETED
    dense = (cells["role"] == "baseline") & done
    own = [c for c in map(str, cells) if delta_column(c) == c != GAP_ROUTE and ":" not in c]
    cells = cells.assign(**{c: cells[c].mask(dense & cells[c].isna(), 0.0) for c in own})
    values, lowest_first = cells[key].where(done), lower_is_better(key)
    order = values.sort_values(ascending=lowest_first, na_position="last", kind="stable").index
    ordered = values if metric_kind(key).sign else values * float("nan")
    rank = ordered.rank(method="min", ascending=lowest_first).astype("Int64")
    return cells.assign(rank=rank).loc[order]


def tied_with_best(lab: Lab, frame: pd.DataFrame, cells: Sequence[str]) -> list[str]:
    """Return the cells that cannot be told from the first: paired, the interval holds zero.

    Args:
        cells: completed trials, best first by held-out gap.
    """
    best, *others = cells[: RIVALS + 1]
    done = (frame["role"] == "trial") & (frame["state"] == "completed")
    near = frame.loc[done & frame["cell"].isin([best, *others])]
    seeds: dict[str, _Seeds] = {cell: {} for cell in (best, *others)}
    columns = ("cell", "seed", "run", "baseline", GAP_HELDOUT)
    for cell, seed, *facts in zip(*(near[column] for column in columns)):
        seeds[cell][seed] = _Seed(*facts)
    steps = frame.attrs.get("at_step", {})  # of runs that are compared before their end
    planned = frame.attrs.get("evaluations", ())
    differences = {cell: _paired(lab, seeds[best], seeds[cell], steps, planned) for cell in others}
    return [cell for cell, less in differences.items() if less is None or not less.high < 0]


class _Seed(NamedTuple):
    """A cell with one seed: its run, its baseline and its held-out gap."""

    run: str
    baseline: str
    gap: float


_Seeds = dict[int, _Seed]


def _paired(
    lab: Lab, ours: _Seeds, theirs: _Seeds, steps: Mapping[str, int], planned: Collection[str]
) -> PairedGap | None:
    """Return a cell less another in held-out gap, over common seeds or over images of one seed.

    A seed counts where both have a gap.

    The result is `None` where the two cannot be paired.

    Args:
        steps: at which runs are compared, where that is before their end.
    """
    common = [
        seed
        for seed, one in ours.items()
        if seed in theirs and math.isfinite(one.gap) and math.isfinite(theirs[seed].gap)
    ]
    if len(common) > 1:
        return gap_over_seeds([ours[seed].gap - theirs[seed].gap for seed in common])
    if not common:
        return None
    one, other = (seeds[common[0]] for seeds in (ours, theirs))
    runs = [one.run, other.run]
    if one.baseline != other.baseline:  # a common one cancels
        runs += [one.baseline, other.baseline]
    paths = [losses_paths(lab.run(run), steps.get(run)) for run in runs]
    both = common_evaluation(paths, planned)
    if both is None:
        return None
    try:
        a, b, *dense = (Losses.read(path[both]).dense for path in paths)
        return gap_over_images(a - dense[0], b - dense[1]) if dense else gap_over_images(a, b)
    except UserError:
        return None


def without_baseline(frame: pd.DataFrame) -> list[str]:
    """A line for every baseline that ended without a result: its trials are compared with none."""
    baselines = frame[frame["run"].isin(frame["baseline"])].drop_duplicates("run")
    return [
        without_comparison(f"{row['cell']} seed {row['seed']}", RunState(row["state"]))
        for _, row in baselines.iterrows()
        if RunState(row["state"]).lacks_result
    ]
