"""The loss gap to the dense baseline: against the route's length, and over training (Fig. S10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.placements import commonest, measured_as, placements
from tread_lab.analysis.figures.style import (
    BLACK,
    GREEN,
    GREY,
    PINK,
    SEQUENTIAL,
    Axes,
    Line2D,
    Normalize,
    label,
    power_of_ten,
    times,
)
from tread_lab.frames import delta_column
from tread_lab.records.metric_names import TRAIN_LOSS

Array = NDArray[np.float64]
FAMILIES = (GREEN, PINK, GREY)  # colours that say nothing of better or worse


@dataclass(frozen=True)
class GapByLength:
    """One point a placement, shortest routes first.

    Attributes:
        metric: what the values are; a difference, so the baseline is 0.
        length: blocks skipped, j - i + 1.
        start, end: the route.
        value, low, high: the gap and its interval.
        common_start, common_end: the start and the end with most planned routes.
        rank_correlation: Spearman's, between length and gap; NaN below three points.
        measured_as: what the intervals are taken over.
    """

    metric: str
    length: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    value: Array
    low: Array
    high: Array
    common_start: int
    common_end: int
    rank_correlation: float
    measured_as: str


@dataclass(frozen=True)
class GapOverSteps:
    """Smoothed paired differences of the training loss, one curve a route, shortest first.

    Attributes:
        names: by curve, its route (`2->8`), or its whole cell where a route has several.
        length: blocks skipped, by curve.
        steps, gaps: by curve, [points] each: logged steps, and the mean over seeds.
        halflife: of the smoothing, in logged entries.
    """

    names: tuple[str, ...]
    length: tuple[int, ...]
    steps: tuple[NDArray[np.int64], ...]
    gaps: tuple[Array, ...]
    halflife: float


def gap_by_length(frame: pd.DataFrame, metric: str = "gap/train") -> GapByLength:
    """Every completed placement's gap against its length, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, or several cells share a route (see `placements`).
    """
    planned = placements(frame, metric)
    places = planned[planned["value"].notna()].sort_values(["length", "start"])
    return GapByLength(
        metric=delta_column(metric),
        length=places["length"].to_numpy(),
        start=places["start"].to_numpy(),
        end=places["end"].to_numpy(),
        value=places["value"].to_numpy(float),
        low=places["low"].to_numpy(float),
        high=places["high"].to_numpy(float),
        common_start=commonest(planned["start"]) if len(planned) else 0,
        common_end=commonest(planned["end"]) if len(planned) else 0,
        rank_correlation=_spearman(places["length"].to_numpy(), places["value"].to_numpy(float)),
        measured_as=measured_as(places),
    )


def gap_over_steps(
    frame: pd.DataFrame, history: pd.DataFrame, *, key: str = TRAIN_LOSS, halflife: float = 3.0
) -> GapOverSteps:
    """Differences of logged losses to the baseline of the same seed at equal steps, smoothed.

    Runs of one seed share batches, noise and label drops, so the difference is far steadier than
    either curve. Smoothing is an exponential mean of the differences; completed trials only.

    Args:
        frame: rows of `trials_frame`.
        history: rows of `history_frame`.
        halflife: logged entries after which a difference counts half.
    """
    logged = history[history["key"] == key]
    curves = {str(run): rows.set_index("step")["value"] for run, rows in logged.groupby("run")}
    trials = frame[(frame["role"] == "trial") & (frame["state"] == "completed")]
    trials = trials[trials["run"] != trials["baseline"]]  # a rate of 0 is the dense run itself
    trials = trials.drop_duplicates(["run", "baseline"]).sort_values(
        ["route_length", "route_start"], kind="stable"
    )
    found: dict[str, tuple[int, NDArray[np.int64], Array]] = {}
    for name, seeds in trials.groupby("cell", sort=False):
        pairs = zip(seeds["run"], seeds["baseline"])
        gaps = [curves[a] - curves[b] for a, b in pairs if a in curves and b in curves]
        mean = pd.concat(gaps, axis=1).dropna().mean(axis=1).sort_index() if gaps else pd.Series()
        if len(mean):
            smooth = mean.ewm(halflife=halflife).mean()
            steps, length = smooth.index.to_numpy(np.int64), int(seeds["route_length"].iloc[0])
            found[str(name)] = (length, steps, smooth.to_numpy(float))
    lengths, steps_of, gaps_of = zip(*found.values()) if found else ((), (), ())
    return GapOverSteps(tuple(found), lengths, steps_of, gaps_of, halflife)


def draw_gap_by_length(gaps: GapByLength, ax: Axes) -> None:
    """Points with intervals; routes that share a start or an end share a marker."""
    power = power_of_ten(np.concatenate([gaps.value, gaps.low, gaps.high]))
    scale = 10.0**power
    ax.axhline(0, color=BLACK, linewidth=0.7)
    families = _families(gaps)
    for family, (members, text) in enumerate(families):
        at = gaps.length[members] + 0.16 * (family - (len(families) - 1) / 2)
        value, low, high = (v[members] / scale for v in (gaps.value, gaps.low, gaps.high))
        spread = np.nan_to_num(np.stack([value - low, high - value]))
        (points, *_) = ax.errorbar(at, value, spread, linestyle="none", color=FAMILIES[family])
        points.set(marker="os^"[family], label=text)
    if gaps.measured_as:
        ax.set_title(f"intervals: {gaps.measured_as}")
    correlation = gaps.rank_correlation
    told = f" (rank correlation {correlation:.2f})" if np.isfinite(correlation) else ""
    ax.set_xlabel("route length, blocks skipped" + told)
    ax.set_ylabel(label(gaps.metric) + times(power))
    ax.locator_params(axis="x", integer=True)
    if len(gaps.value):
        ax.legend(loc="best")


def draw_gap_over_steps(gaps: GapOverSteps, ax: Axes) -> None:
    """One line a route, darker for shorter ones; zero is the baseline."""
    power = power_of_ten(np.concatenate([np.zeros(1), *gaps.gaps]))
    norm = Normalize(min(gaps.length, default=0), max(gaps.length, default=1))
    ax.axhline(0, color=BLACK, linewidth=0.7)
    for length, steps, values in zip(gaps.length, gaps.steps, gaps.gaps):
        colour = SEQUENTIAL(0.92 * norm(length))
        ax.plot(steps, values / 10.0**power, color=colour, linewidth=0.9)
    lengths = sorted(set(gaps.length))
    handles = [
        Line2D([], [], color=SEQUENTIAL(0.92 * norm(length)), label=str(length))
        for length in lengths
    ]
    if handles:
        ax.legend(
            handles=handles,
            title="blocks\nskipped",
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            labelspacing=0.25,
        )
    ax.set_title(f"paired differences, smoothed over {gaps.halflife:g} logged entries")
    ax.set_xlabel("training step")
    ax.set_ylabel("Δ training loss" + times(power))


def _families(gaps: GapByLength) -> list[tuple[NDArray[np.bool_], str]]:
    """The commonest start, then the commonest end, then the rest; empty ones fall away."""
    first = gaps.start == gaps.common_start
    second = (gaps.end == gaps.common_end) & ~first
    found = [
        (first, f"{gaps.common_start}$\\to j$"),
        (second, f"$i\\to${gaps.common_end}"),
        (~first & ~second, "other routes"),
    ]
    return [(members, text) for members, text in found if members.any()]


def _spearman(x: Array, y: Array) -> float:
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return float("nan")
    return float(pd.Series(x).rank().corr(pd.Series(y).rank()))
