"""One row per cell: its seeds brought together, each metric with its interval; and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tread_lab.config.errors import UserError, suggest
from tread_lab.config.labels import value_text
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    delta_column,
)
from tread_lab.records.run_state import RunState
from tread_lab.results.intervals import half_width

LOW, HIGH, COUNT, UNIT, KEPT = ":low", ":high", ":n", ":unit", ":kept"
PAIRED = ":paired"  # half the width of the interval of a difference to the baseline
PLACE_AXES = ("start", "end", "route", "routes")
OWN = (LOW, HIGH, COUNT, KEPT, PAIRED)  # what a trial's number has beside it
FLAGS = ("mixed", "disturbed")  # of a cell where one of its seeds has them
BEYOND, DISTURBED = 1.1, 1.2  # factors of a measured speed-up over what is expected
BEHIND = 0.6  # of the speed-up by FLOPs; a small network alone on a machine reaches more

NO_RESULT = {  # state of a baseline that ended -> what it means for its trials
    state: f"its baseline {state.lacks_result}: there is nothing to compare with"
    for state in RunState
    if state.lacks_result
}

# From the least to the most remarkable: a cell has the last state in which one of its seeds is.
STATES = ("completed", "pending", "interrupted", "running", "stopped", "diverged", "failed")


def cells_frame(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per cell, averaged over seeds, from rows of `trials_frame`, in plan order.

    Every metric is a mean over completed seeds, with `:low`, `:high`, `:n` and `:unit`. The
    interval is over `seeds` if there are two or more, else over the held-out `images` (gaps) or
    `samples` (Frechet distances) of the only seed, else missing. `seeds` is the planned number.
    `state` is `completed` if all seeds are, else the worst state.
    """
    metrics = [column for column in metric_columns(trials) if not column.endswith(OWN)]
    bare = trials.copy(deep=False)
    bare.attrs = {}  # pandas would copy them with every column
    place = bare.groupby(["role", "cell"], sort=False).ngroup()  # numbers are quick to group by
    groups = bare.groupby(place)
    dropped = ("run", "seed", "baseline", "state", "reason", *FLAGS, "steps_done", "role", "cell")
    fixed = [c for c in bare.columns if not is_metric(c) and c not in dropped]
    codes, states = pd.factorize(bare["state"])
    worst = pd.Series([STATES.index(state) for state in states], dtype=int)
    rank = worst.take(codes).set_axis(bare.index)
    worst = rank.groupby(place.to_numpy()).max()
    alone = bare["reason"].isin(NO_RESULT.values())
    told = (bare["reason"] != "") & (rank == place.map(worst))
    told &= ~alone | alone.groupby(place).transform("all")
    reasons = bare.loc[told, "reason"].groupby(place[told]).first()
    done = (bare["state"] == RunState.COMPLETED).groupby(place).sum()
    firsts = bare[~place.duplicated()]  # the seeds of a cell share their settings
    columns = {
        "role": firsts["role"].array,
        "cell": firsts["cell"].array,
        "state": worst.map(STATES.__getitem__).array,
        "reason": reasons.reindex(worst.index, fill_value="").array,
        **{flag: bare[flag].groupby(place).any().array for flag in FLAGS if flag in bare},
        **{name: firsts[name].array for name in fixed},
        "seeds": groups.size().array,
        "completed": done.array,
        **_over_seeds(groups, metrics),
    }
    cells = pd.DataFrame(columns)
    cells.attrs["axes"] = list(trials.attrs.get("axes", ()))
    return cells


def with_delta(trials: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return `trials` with `delta_column(metric)`: each trial's value minus its baseline's."""
    column = delta_column(metric)
    if column == metric:
        return trials
    apart = trials[metric] - of_baseline(trials, metric)
    ends = {}
    if metric + PAIRED in trials:
        half = trials[metric + PAIRED]
        ends = {LOW: apart - half, HIGH: apart + half, COUNT: trials[metric + COUNT]}
    return trials.assign(**{column: apart, **{column + end: x for end, x in ends.items()}})


def of_baseline(trials: pd.DataFrame, metric: str) -> pd.Series[float]:
    """Return the baseline's value of a metric for each trial; NaN for baselines."""
    runs, baselines = (trials[name].to_numpy(object) for name in ("run", "baseline"))
    values = dict(zip(runs[::-1], trials[metric].to_numpy(float, na_value=np.nan)[::-1]))
    return pd.Series([values.get(run, np.nan) for run in baselines], trials.index, dtype=float)


def over_dense(trials: pd.DataFrame, cost: str) -> pd.Series[float]:
    """Return for each (role, cell) its mean cost over that of its baselines, of the seeds that have
    both; 1 for a baseline."""
    own = trials[cost].astype(float)
    dense = of_baseline(trials, cost).where(trials["role"] != "baseline", own)
    both = trials[["role", "cell"]].assign(own=own, dense=dense).dropna()
    means = both.groupby(["role", "cell"])[["own", "dense"]].mean()
    return means["own"] / means["dense"]


def disturbed(trials: pd.DataFrame) -> pd.Series[bool]:
    """Return the trials whose times were disturbed by other work on the machine.

    Routes save time only by FLOPs, so a speed-up over 1.1 times that of FLOPs is implausible. Small
    networks gain less than their FLOPs, so the ratio is also compared with the median trial: more
    than 20% away is disturbed. If most trials are that far from a baseline, the baseline is
    disturbed. Trials with another network or precision than their baseline are not judged.
    """
    if not {TRAIN_FLOPS, TRAIN_SECONDS} <= {*trials}:
        return pd.Series(False, index=trials.index)
    flops, seconds = (
        trials[name].astype(float) / of_baseline(trials, name)
        for name in (TRAIN_FLOPS, TRAIN_SECONDS)
    )
    share = flops / seconds  # the measured speed-up over that of FLOPs
    for name in (name for name in ("model", "precision") if name in trials):
        theirs = trials["baseline"].map(trials.drop_duplicates("run").set_index("run")[name])
        share = share.where(trials[name] == theirs)
    away = share / share.median()
    typical = share.groupby(trials["baseline"]).median()
    of_slow = trials["run"].isin(typical.index[typical > BEYOND])
    alone = typical.index[typical < BEHIND]
    of_idle = trials["run"].isin(alone) | trials["baseline"].isin(alone)
    return of_slow | of_idle | (share > BEYOND) | (away > DISTURBED) | (away < 1 / DISTURBED)


def _over_seeds(groups: Any, metrics: list[str]) -> dict[str, Any]:
    """Mean, interval, count and the interval's unit of each metric over the seeds that have it."""
    with_own = [metric for metric in metrics if metric + LOW in groups.obj]
    ends = [metric + end for metric in with_own for end in (LOW, HIGH, COUNT)]
    own = {name: column.to_numpy() for name, column in groups[ends].mean().items()}
    mean_CM, spread_CM = groups[metrics].mean().to_numpy(), groups[metrics].std().to_numpy()
    n_CM = groups[metrics].count().to_numpy()
    half_CM = half_width(spread_CM, n_CM)
    columns: dict[str, Any] = {}
    for metric, mean, half, n in zip(metrics, mean_CM.T, half_CM.T, n_CM.T):
        low, high, counted, units = mean - half, mean + half, n, np.where(n >= 2, "seeds", "")
        if metric in with_own:
            images = own[metric + COUNT]
            single = (n == 1) & ~np.isnan(images)  # unreadable losses leave a gap no interval
            units = np.where(single, "samples" if "@" in metric else "images", units)
            counted = np.where(single, images, n).astype(int)
            low = np.where(single, own[metric + LOW], low)
            high = np.where(single, own[metric + HIGH], high)
        names = (metric, metric + LOW, metric + HIGH, metric + COUNT, metric + UNIT)
        columns |= zip(names, (mean, low, high, counted, units.astype(object)))
    return columns


def deviation_of(frame: pd.DataFrame) -> float:
    """Return the standard deviation of held-out gaps over seeds; NaN without two seeds.

    Root mean square over cells of their standard deviations.
    """
    if GAP_HELDOUT not in frame:
        return float("nan")
    done = (frame["role"] == "trial") & (frame["state"] == RunState.COMPLETED)
    routed = frame[done & (frame["run"] != frame["baseline"])]
    return float(np.sqrt((routed.groupby("cell")[GAP_HELDOUT].std() ** 2).mean()))


def metric_columns(frame: pd.DataFrame) -> list[str]:
    """Return the measured columns with intervals: evaluations, then gaps, then costs."""
    groups = ("gap/", "cost/", "throughput/")
    columns = [str(column) for column in frame.columns if is_metric(column)]
    order = {c: next((k for k, g in enumerate(groups, 1) if c.startswith(g)), 0) for c in columns}
    return sorted(columns, key=lambda column: order[column])


def own_metrics(frame: pd.DataFrame) -> list[str]:
    """Return `metric_columns` without metrics that other sweeps measured on shared runs."""
    foreign, done = frame.attrs.get("foreign", ()), frame["state"] == RunState.COMPLETED
    return [
        c for c in metric_columns(frame) if c not in foreign or frame.loc[done, c].notna().all()
    ]


def require_metric(frame: pd.DataFrame, metric: str) -> None:
    """Raise a UserError for an unknown metric, with a suggestion.

    Interval columns (`gap/heldout:low`) and settings (`seed`) are not metrics.
    """
    metrics = [c for c in metric_columns(frame) if ":" not in c]
    if metric not in metrics:
        raise UserError(f"no metric {metric!r} in this sweep{suggest(metric, metrics)}")


def is_metric(column: object) -> bool:
    """Whether a column is a metric or its interval."""
    return any(mark in str(column) for mark in ("/", "@"))


def plain(value: Any) -> Any:
    """Return a value for a column: scalars unchanged, lists and mappings as compact JSON."""
    return value_text(value) if isinstance(value, dict | list | tuple) else value


def other_axes(frame: pd.DataFrame) -> list[str]:
    """Return the axes of the sweep that are not the route's."""
    return [axis for axis in frame.attrs.get("axes", ()) if axis not in PLACE_AXES]
