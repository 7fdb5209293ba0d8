"""The loss gap to the dense baseline: against the route's length, and over training (Fig. S10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords
from tread_lab.analysis.figures.placements import (
    Array,
    Ints,
    Placements,
    commonest,
    placements,
    rank_correlation,
)
from tread_lab.analysis.figures.sentences import number, routed, trend
from tread_lab.records.metric_names import GAP_TRAIN, TRAIN_LOSS

FAMILIES = (style.GREEN, style.PINK, style.GREY)


@dataclass(frozen=True)
class GapByLength:
    """One point a measured placement, shortest routes first.

    Attributes:
        common_start, common_end: the start and the end with most planned routes.
        rank_correlation: Spearman's, between length and gap; NaN below three points.
    """

    places: Placements
    common_start: int
    common_end: int
    rank_correlation: float


@dataclass(frozen=True)
class GapOverSteps:
    """Smoothed paired differences of the training loss, one curve per cell, shortest route first.

    Attributes:
        names: cells, by curve.
        length: blocks skipped, by curve.
        steps, gaps: by curve, [points] each: logged steps, and the mean over seeds.
        halflife: of the smoothing, in logged entries.
    """

    names: tuple[str, ...]
    length: tuple[int, ...]
    steps: tuple[Ints, ...]
    gaps: tuple[Array, ...]
    halflife: float


def gap_by_length(frame: pd.DataFrame, metric: str = GAP_TRAIN) -> GapByLength:
    """Return every measured placement's gap against its length, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, or several cells share a route (see `placements`).
    """
    planned = placements(frame, metric)
    order = np.lexsort((planned.start, planned.length))
    places = planned.take(order[planned.measured[order]])
    return GapByLength(
        places,
        commonest(planned.start),
        commonest(planned.end),
        rank_correlation(places.length, places.value)[0],
    )


def gap_over_steps(
    frame: pd.DataFrame, history: pd.DataFrame, *, halflife: float = 3.0
) -> GapOverSteps:
    """Return differences of training losses to the baseline of the same seed at equal steps.

    Runs of one seed share batches, noise and label drops, so the difference is far steadier than
    either curve. Smoothing is an exponential mean of the differences; completed trials only.

    Args:
        frame: rows of `trials_frame`.
        history: rows of `history_frame`.
        halflife: logged entries after which a difference counts half.
    """
    logged = history[history["key"] == TRAIN_LOSS]
    losses = {str(run): rows.set_index("step")["value"] for run, rows in logged.groupby("run")}
    trials = frame[(frame["role"] == "trial") & (frame["state"] == "completed")]
    trials = trials[trials["run"] != trials["baseline"]]  # a rate of 0 is the dense run itself
    trials = trials.drop_duplicates(["run", "baseline"]).sort_values(
        ["length", "start"], kind="stable"
    )
    curves: dict[str, tuple[int, Ints, Array]] = {}
    for name, seeds in trials.groupby("cell", sort=False):
        pairs = zip(seeds["run"], seeds["baseline"])
        gaps = [losses[a] - losses[b] for a, b in pairs if a in losses and b in losses]
        mean = pd.concat(gaps, axis=1).dropna().mean(axis=1).sort_index() if gaps else pd.Series()
        if len(mean):
            smooth = mean.ewm(halflife=halflife).mean()
            steps, length = smooth.index.to_numpy(np.int64), int(seeds["length"].iloc[0])
            curves[str(name)] = (length, steps, smooth.to_numpy(float))
    lengths, steps_of, gaps_of = zip(*curves.values()) if curves else ((), (), ())
    return GapOverSteps(tuple(curves), lengths, steps_of, gaps_of, halflife)


def with_the_baselines_loss(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose training loss may be compared with their baseline's: the same loss."""
    losses = frame.drop_duplicates("run").set_index("run")["loss"].fillna("")
    baseline = frame["baseline"].map(losses)
    return frame[baseline.isna() | (baseline == frame["loss"].fillna(""))]


def draw_gap_by_length(gaps: GapByLength, ax: style.Axes) -> None:
    """Draw points with intervals; routes that share a start or an end share a marker."""
    places = gaps.places
    power, value, spread = style.scaled(places.value, places.low, places.high)
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    families = _families(gaps)
    for family, (members, text) in enumerate(families):
        at = places.length[members] + 0.16 * (family - (len(families) - 1) / 2)
        bars = spread[:, members]
        (points, *_) = ax.errorbar(
            at, value[members], bars, linestyle="none", color=FAMILIES[family]
        )
        points.set(marker="os^"[family], label=text)
    if places.measured_as:
        ax.set_title(f"intervals: {places.measured_as}")
    correlation = gaps.rank_correlation
    text = f" (rank correlation {correlation:.2f})" if np.isfinite(correlation) else ""
    ax.set_xlabel("route length, blocks skipped" + text)
    ax.set_ylabel(style.label(places.metric) + style.times(power))
    ax.locator_params(axis="x", integer=True)
    if families:
        ax.legend(loc="best")


def _families(gaps: GapByLength) -> list[tuple[NDArray[np.bool_], str]]:
    """Return the commonest start, the commonest end and the rest; empty ones are left out."""
    first = gaps.places.start == gaps.common_start
    second = (gaps.places.end == gaps.common_end) & ~first
    families = [
        (first, f"{gaps.common_start}$\\to j$"),
        (second, f"$i\\to${gaps.common_end}"),
        (~first & ~second, "other routes"),
    ]
    return [(members, text) for members, text in families if members.any()]


def draw_gap_over_steps(gaps: GapOverSteps, ax: style.Axes, *, named: bool = False) -> None:
    """Draw one line per cell; zero is the baseline.

    Lines are darker for shorter routes, and those of one length have dashes of their own; `named`
    ones have a colour of the cycle and, past the colours, dashes.
    """
    power = style.power_of_ten(np.concatenate([np.zeros(1), *gaps.gaps]))
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    last = max(1, len(gaps.names) - 1)
    for k, name in enumerate(gaps.names):
        colour = style.CYCLE[k % len(style.CYCLE)] if named else style.SEQUENTIAL(0.92 * k / last)
        turn = k // len(style.CYCLE) if named else gaps.length[:k].count(gaps.length[k])
        dashes = ("-", "--", ":", "-.")[turn % 4]
        text = style.arrow(name)
        values = gaps.gaps[k] / 10.0**power
        ax.plot(gaps.steps[k], values, dashes, color=colour, linewidth=0.9, label=text)
    handles, texts = ax.get_legend_handles_labels()
    if handles:
        ax.legend(
            handles,
            texts,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            labelspacing=0.25,
        )
    ax.set_title(f"paired differences, smoothed over {gaps.halflife:g} logged entries")
    ax.set_xlabel("training step")
    ax.set_ylabel("Δ training loss" + style.times(power))


def length_caption(gaps: GapByLength) -> str:
    """Return whether longer routes have the larger gap."""
    if not np.isfinite(gaps.rank_correlation):
        return "Too few routes for a trend over their length."
    return (
        f"Rank correlation of length and gap over {len(gaps.places.routes)} routes:"
        f" {number(gaps.rank_correlation)};"
        f" {trend(gaps.rank_correlation, 'longer routes have the larger gap')}. The gap is that of"
        " the routed task, which is harder by construction; it is no measure of quality."
    )


def steps_caption(gaps: GapOverSteps) -> str:
    """Return the last gap of the shortest and of the longest route."""
    if not gaps.names:
        return "No two runs logged the same steps yet."
    first, last = gaps.gaps[0][-1], gaps.gaps[-1][-1]
    return (
        f"At step {gaps.steps[0][-1]} the training loss of the shortest route"
        f" ({routed(gaps.names[0])}) is {number(first, signed=True)} from the dense run's, that of"
        f" the longest ({routed(gaps.names[-1])}) {number(last, signed=True)}. Runs of one seed"
        " share batches and noise, so differences are steadier than either curve."
    )


def _by_length(records: SweepRecords) -> Iterator[Drawn]:
    gaps = gap_by_length(records.frame) if GAP_TRAIN in records.frame else None
    if gaps is not None and len(gaps.places.routes) > 2:
        fig, (ax,) = style.figure(height=2.2)
        draw_gap_by_length(gaps, ax)
        yield Drawn("gap_by_length", length_caption(gaps), fig)


def _over_steps(records: SweepRecords) -> Iterator[Drawn]:
    gaps = gap_over_steps(records.frame, records.history)
    if gaps.names:
        fig, (ax,) = style.figure(height=max(2.2, 0.5 + 0.13 * len(gaps.names)))
        draw_gap_over_steps(gaps, ax)
        yield Drawn("gap_over_steps", steps_caption(gaps), fig)


def _all_over_steps(records: SweepRecords) -> Iterator[Drawn]:
    if records.panels > 1:
        gaps = gap_over_steps(with_the_baselines_loss(records.frame), records.history)
        if gaps.names:
            fig, (ax,) = style.figure(
                width=style.PAGE, height=max(2.2, 0.5 + 0.13 * len(gaps.names))
            )
            draw_gap_over_steps(gaps, ax, named=True)
            yield Drawn("gap_over_steps_all", "The loss gap of every cell over training.", fig)


GAP_BY_LENGTH = FigureKind(
    "Loss gap against the route's length", _by_length, each_panel=True, compares=True
)
GAP_OVER_STEPS = FigureKind("Loss gap over training", _over_steps, each_panel=True)
ALL_OVER_STEPS = FigureKind("Loss gap over training, all cells", _all_over_steps)
