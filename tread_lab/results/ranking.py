"""The ranking of cells: by what, in which order, which are alike; and as a table everywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.config.labels import plain_markdown
from tread_lab.config.units import ratio
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    FAMILY_FLOPS,
    GAP_HELDOUT,
    GAP_ROUTE,
    HELDOUT_LOSS,
    TRAIN_FLOPS,
    delta_column,
    lower_is_better,
    metric_kind,
)
from tread_lab.records.run_state import RunState, without_comparison
from tread_lab.results.cells import (
    COUNT,
    HIGH,
    LOW,
    UNIT,
    cells_frame,
    over_dense,
    own_metrics,
    require_metric,
)
from tread_lab.results.gaps import (
    Losses,
    PairedGap,
    common_evaluation,
    gap_over_images,
    losses_paths,
)
from tread_lab.results.intervals import (
    t_interval,
    widening,
    worse_over_seeds,
)
from tread_lab.results.texts import intervals_over, result_texts

NEAREST = 300  # rivals of one seed whose losses are read; further ones count as not told apart
# Fields of the data that leave the held-out samples as they are.
ONE_LOSS = ("data.flips", "data.posterior", "data.decoder_scale", "data.decoder_range")
BEST = ":best"  # columns of the best cell beside those of another


def ranking_key(frame: pd.DataFrame) -> str | None:
    """Return the metric by which cells are ranked, or `None` before any evaluation.

    With one kind of baseline, the gap in held-out loss. With several kinds, held-out loss, because
    gaps to different baselines do not compare; but the gap for several data sets or processes,
    whose losses do not compare. Otherwise a metric of samples.
    """
    kinds = frame.loc[frame["role"] == "baseline", "cell"].nunique()
    own = own_metrics(frame)
    samples = [column for column in own if "@" in column and ":" not in column]
    keys = (HELDOUT_LOSS, GAP_HELDOUT, *samples)
    if kinds == 1:
        keys = (GAP_HELDOUT, HELDOUT_LOSS, *samples)
    elif any(scales_loss(a, frame[a]) for a in frame.attrs.get("axes", ()) if a in frame):
        compared = frame[frame["run"] != frame["baseline"]]  # not a baseline with itself
        paired = GAP_HELDOUT in own and compared[GAP_HELDOUT].notna().any()
        keys = (*((GAP_HELDOUT,) if paired else ()), *samples, HELDOUT_LOSS)
    return next((c for c in keys if c in own and frame[c].notna().any()), None)


def scales_loss(axis: str, values: Iterable[Any]) -> bool:
    """Return whether an axis changes the data or process, and so the scale of losses."""
    if axis in ONE_LOSS or axis.partition(".")[0] not in ("data", "process"):
        return False
    return len({repr(value) for value in values}) > 1  # an axis may have one value


def ranking_caption(metric: str, comparison: str = "") -> str:
    """Return the caption of a ranking by `metric`.

    Args:
        comparison: what was held equal, `frame.attrs["comparison"]`.
    """
    order = {1: "lower is better", -1: "higher is better", 0: "which is no measure of quality"}
    kind = order[metric_kind(metric).sign]
    question = f", {comparison}" if comparison else ""
    return f"ranked by {metric}, {kind}{question}; a row is a cell, its seeds averaged"


def ranked_cells(frame: pd.DataFrame, key: str | None) -> pd.DataFrame:
    """Return `cells_frame`, best first by `key`, without trials that equal their baseline.

    `rank` starts at 1; ties share a rank. Cells without a number follow in plan order.
    """
    own = (frame["role"] == "trial") & (frame["run"] == frame["baseline"])
    cells = cells_frame(frame[~own])
    return cells if key is None else best_first(cells, key)


def best_first(cells: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return rows of `cells_frame` in ranking order; a baseline's differences are 0.

    The reason of a cell states if it is ranked by some of its completed seeds only.
    """
    done = cells["state"] == RunState.COMPLETED
    dense = (cells["role"] == "baseline") & done
    own = [c for c in map(str, cells) if delta_column(c) == c != GAP_ROUTE and ":" not in c]
    cells = cells.assign(**{c: cells[c].mask(dense & cells[c].isna(), 0.0) for c in own})
    values, lowest_first = cells[key].where(done), lower_is_better(key)
    order = values.sort_values(ascending=lowest_first, na_position="last", kind="stable").index
    ordered = values if metric_kind(key).sign else values * float("nan")
    rank = ordered.rank(method="min", ascending=lowest_first).astype("Int64")
    seeds = cells[key + COUNT].mask(cells[key + UNIT] == "images", 1)
    some = done & (cells["reason"] == "") & (seeds > 0) & (seeds < cells["completed"])
    told = [f"{key} of {n:g} of {of} seeds" for n, of in zip(seeds, cells["completed"])]
    return cells.assign(rank=rank, reason=cells["reason"].mask(some, told)).loc[order]


def started_cells(frame: pd.DataFrame) -> int:
    """Return the number of started cells without baselines, including cells without a result and
    cells that left the file."""
    begun = (frame["role"] == "trial") & (frame["run"] != frame["baseline"])
    now = int(frame.loc[begun & (frame["state"] != RunState.PENDING), "cell"].nunique())
    return now + len(frame.attrs.get("left", ()))


def tied_with_best(
    lab: Lab, frame: pd.DataFrame, cells: Sequence[str], metric: str = GAP_HELDOUT
) -> list[str]:
    """Return the cells that cannot be distinguished from the first.

    At 95% for all pairs of started cells. Differences are paired over seeds, or over images for
    single seeds.

    Args:
        cells: completed trials, best first by the metric.
        metric: the gap in held-out loss, or the loss itself.
    """
    if len(cells) < 2:
        return []
    rows, family = _measured(frame, cells), started_cells(frame)
    worse = worse_over_seeds(_by_seed(rows, cells, metric), chosen=True, cells=family)
    if worse is None:
        own = _worse_over_images(lab, frame, rows, cells, metric)
        return [cell for cell in cells[1:] if cell not in own]
    return [cell for cell, is_worse in zip(cells[1:], worse[1:]) if not is_worse]


def better_than_dense(frame: pd.DataFrame, done: pd.DataFrame) -> bool:
    """Return whether the first cell is better than dense at 95%, corrected for its choice.

    Requires both its own interval and a simultaneous one over all started cells, over seeds. Never
    true for one seed.

    Args:
        done: rows of `ranked_cells`, completed trials, best first by held-out gap.
    """
    if not done[GAP_HELDOUT + HIGH].iloc[0] < 0:
        return False
    gaps_SK = _by_seed(_measured(frame, done["cell"]), done["cell"], GAP_HELDOUT)
    dense_and_SK, family = np.insert(-gaps_SK, 0, 0.0, axis=1), started_cells(frame) + 1
    better = worse_over_seeds(dense_and_SK, chosen=False, cells=family)
    return better is not None and bool(better[1])


def _measured(frame: pd.DataFrame, cells: Collection[str]) -> pd.DataFrame:
    """Return the completed trials of some cells that have a held-out gap."""
    done = (frame["role"] == "trial") & (frame["state"] == RunState.COMPLETED)
    return frame[done & frame["cell"].isin(cells) & frame[GAP_HELDOUT].notna()]


def _by_seed(rows: pd.DataFrame, cells: Iterable[str], metric: str) -> NDArray[np.float64]:
    """Return a metric of cells, [S, K], NaN where a cell lacks a seed."""
    gaps = rows.groupby(["seed", "cell"])[metric].first().unstack()
    return gaps.reindex(columns=[*cells]).to_numpy(float)


def lead(lab: Lab, frame: pd.DataFrame, cell: str, control: str) -> PairedGap | None:
    """Return the gap of a cell minus a control's, over common seeds, or over the images of a
    single one; `None` without common seeds."""
    done = frame[(frame["state"] == RunState.COMPLETED) & frame[GAP_HELDOUT].notna()]
    own, other = (
        done[(done["role"] == role) & (done["cell"] == name)].set_index("seed")
        for role, name in (("trial", cell), ("control", control))
    )
    seeds = own.index.intersection(other.index)
    if len(seeds) > 1:
        apart = (own[GAP_HELDOUT] - other[GAP_HELDOUT]).loc[seeds].to_numpy(float)
        return PairedGap(*t_interval(apart), len(seeds), "seeds")
    steps, planned = frame.attrs.get("at_step", {}), frame.attrs.get("evaluations", ())
    if seeds.empty:
        return None
    first, second = (
        (str(one.loc[seeds[0], "run"]), str(one.loc[seeds[0], "baseline"])) for one in (own, other)
    )
    return _apart(lab, first, second, steps, planned)


def _worse_over_images(
    lab: Lab, frame: pd.DataFrame, rows: pd.DataFrame, cells: Sequence[str], metric: str
) -> set[str]:
    """Return the cells that are worse than the first, each by the images of one common seed.

    The error of a difference is at most the sum of both cells' errors: where that tells them apart,
    no losses are read. Of thousands of other cells those of the nearest are.
    """
    facts = rows[["cell", "seed", "run", "baseline", GAP_HELDOUT, GAP_HELDOUT + HIGH]]
    if metric != GAP_HELDOUT:  # of the runs alone; their baselines have no part in it
        infinite = rows[metric] + np.inf
        facts = facts.assign(**{GAP_HELDOUT: rows[metric], GAP_HELDOUT + HIGH: infinite})
        facts = facts.assign(baseline="")
    best = facts[facts["cell"] == cells[0]]
    pairs = facts.merge(best, on="seed", suffixes=("", BEST))
    steps = frame.attrs.get("at_step", {})  # of runs that are compared before their end
    planned, images = frame.attrs.get("evaluations", ()), int(rows[GAP_HELDOUT + COUNT].min())
    apart = pairs[GAP_HELDOUT] - pairs[GAP_HELDOUT + BEST]
    high = pairs[GAP_HELDOUT + HIGH] + pairs[GAP_HELDOUT + HIGH + BEST]
    half = high - pairs[GAP_HELDOUT] - pairs[GAP_HELDOUT + BEST]
    family = started_cells(frame)
    clear = apart > half * widening(family, images)
    worse = set(pairs.loc[clear, "cell"])
    for pair in pairs[~clear].nsmallest(NEAREST, GAP_HELDOUT).to_dict("records"):
        one, best_one = ((pair["run" + end], pair["baseline" + end]) for end in ("", BEST))
        gap = _apart(lab, one, best_one, steps, planned)
        if gap and gap.mean > (gap.high - gap.mean) * widening(family, gap.n):
            worse.add(pair["cell"])
    return worse


def _apart(
    lab: Lab,
    one: tuple[str, str],
    other: tuple[str, str],
    steps: Mapping[str, int],
    planned: Collection[str],
) -> PairedGap | None:
    """Return a run's gap less that of another over images, `None` where they cannot be paired.

    Args:
        one, other: a run and its baseline.
        steps: at which runs are compared, where that is before their end.
    """
    runs = [one[0], other[0]]
    if one[1] != other[1]:  # a common one cancels
        runs += [one[1], other[1]]
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
    """Return a line for every baseline without a result."""
    baselines = frame[frame["run"].isin(frame["baseline"])].drop_duplicates("run")
    return [
        without_comparison(f"{row['cell']} seed {row['seed']}", RunState(row["state"]))
        for _, row in baselines.iterrows()
        if RunState(row["state"]).lacks_result
    ]


ENDS = (LOW, HIGH, COUNT, UNIT)  # of an interval, beside its number
SAMPLES = ", ± of samples"  # in the head of a column: of one seed, over its sampled images
BUSY = "disturbed"  # in place of a ratio of times that other work has changed
RATIOS = {"flops": "FLOPs / dense", "hours": "device-hours / dense"}


def ranking(
    frame: pd.DataFrame, metric: str | None = None, *, beside: Sequence[str] = ()
) -> pd.DataFrame:
    """Return one row per cell, best first by `metric`; cells without a number follow.

    The rows are those of `ranked_cells`; `None` means the `ranking_key` of the frame.

    Columns: rank, cell, `metric`, the gap in held-out loss, flops (`over_dense` of
    `training_price`), hours (of a device, likewise), the metrics `beside`, state, reason and
    disturbed.
    Where flops counts parents, hours, which do not, are left out. Of each metric also `:low`,
    `:high`, `:n` and `:unit`. A baseline is ranked among the trials; its gap is 0 by definition.
    `table.attrs["cells"]` has (role, cell) of each row.

    Raises:
        UserError: no such metric, or none is given and nothing has been measured.
    """
    metric = metric or ranking_key(frame)
    if metric is None:
        raise UserError("no cell can be ranked before the first evaluation")
    require_metric(frame, metric)
    cells, price = ranked_cells(frame, metric), training_price(frame)
    costs = {"flops": price, "hours": DEVICE_HOURS if price == TRAIN_FLOPS else ""}
    pairs = pd.MultiIndex.from_frame(cells[["role", "cell"]])
    ratios = {
        name: over_dense(frame, cost).reindex(pairs).set_axis(cells.index)
        for name, cost in costs.items()
        if cost in frame
    }
    done = cells["state"] == "completed"
    columns = {**{name: cells.get(name) for name in _with_ends(metric, GAP_HELDOUT)}, **ratios}
    columns |= {name: cells.get(name) for name in _with_ends(*beside)}
    numbers = {name: values.where(done) for name, values in columns.items() if values is not None}
    last = cells[["state", "reason", *(["disturbed"] if "disturbed" in cells else [])]]
    parts = [cells[["rank", "cell"]], pd.DataFrame(numbers), last]
    table = pd.concat(parts, axis=1).reset_index(drop=True)
    table.attrs["cells"] = list(zip(cells["role"], cells["cell"]))
    return table


def formatted(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the ranking as texts, each number with its interval in one column.

    `interval over` has the unit of the intervals of a row, or one per metric if they differ.
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
                texts[head] = texts[head].mask(table["disturbed"] & (texts[head] != ""), BUSY)
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
    """Return the metric of training cost: FLOPs including parents, if they differ and are all
    recorded."""
    own, whole = rows.get(TRAIN_FLOPS), rows.get(FAMILY_FLOPS)
    if own is None or whole is None or whole[own.notna()].isna().any():
        return TRAIN_FLOPS
    parents = (whole - own).dropna()
    differ = len(parents) > 0 and parents.max() - parents.min() > 1e-6 * whole.max()
    return FAMILY_FLOPS if differ else TRAIN_FLOPS


def _with_ends(*metrics: str) -> list[str]:
    return [metric + end for metric in metrics for end in ("", *ENDS)]


def _over(texts: Mapping[str, str]) -> str:
    """Return `3 seeds`, or `gap: 2 seeds, heldout/loss: 3 seeds` where they differ."""
    known = {name: text for name, text in texts.items() if text}
    if len(set(known.values())) < 2:
        return next(iter(known.values()), "")
    return ", ".join(f"{name}: {text}" for name, text in known.items())
