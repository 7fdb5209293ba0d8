"""The training-loss gap to dense: by length, over training, against quality (Fig. S10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.placements import order_text, placements, routes
from tread_lab.analysis.figures.points import (
    NUMBERS,
    Array,
    Drawn,
    Points,
    SweepRecords,
    named,
    sample_metrics,
)
from tread_lab.records.metric_names import GAP_TRAIN, TRAIN_LOSS, delta_column, metric_kind
from tread_lab.results import NO_RESULT, number, routed
from tread_lab.results.intervals import half_width

HALFLIFE = 3.0  # logged entries after which a difference counts half
LENGTH = (
    "Rank correlation of length and gap over {n} routes: {order} The gap is the held-out loss"
    " with routes minus dense's. Routes make the task harder, so the gap does not rank"
    " cells."
)
QUALITY = "Rank correlation over {n} routes: {order}"
STEPS = (
    "The difference is the training loss with routes minus dense's at the same step. It is"
    " expected to be positive and does not rank cells. At step {step}: {kind} ({name}) {gap}"
    "{other}."
)


@dataclass(frozen=True)
class StepGaps:
    """The smoothed paired difference of the training loss of one cell.

    Attributes:
        length: blocks skipped.
        steps, gaps: logged steps, and the mean over seeds.
        half: half of the last gap's 95% interval over seeds; NaN for one seed.
    """

    name: str
    length: int
    steps: NDArray[np.int64]
    gaps: Array
    half: float = float("nan")


def gap_by_length(frame: pd.DataFrame, metric: str = GAP_TRAIN) -> Points:
    """Return the placements of `trials_frame`'s rows, the shortest routes first.

    Raises:
        UserError: unknown metric, or several cells share a route (see `placements`).
    """
    planned = placements(frame, metric)
    return replace(planned, rows=planned.rows.sort_values(["length", "start"]))


def gap_and_quality(frame: pd.DataFrame, metric: str) -> tuple[Points, Points]:
    """Return `gap/train` and a metric of the routes that completed with both numbers.

    Raises:
        UserError: unknown metric, or several cells share a route.
    """
    gap, quality = placements(frame, GAP_TRAIN), placements(frame, metric)
    both = gap.measured.index.intersection(quality.measured.index)  # in plan order
    return replace(gap, rows=gap.rows.loc[both]), replace(quality, rows=quality.rows.loc[both])


def gap_over_steps(
    frame: pd.DataFrame, history: pd.DataFrame, *, halflife: float = HALFLIFE
) -> list[StepGaps]:
    """Return differences of training losses to the baseline of the same seed at equal steps.

    Runs of one seed share batches, noise and label drops, so the difference is far steadier than
    either curve. Differences are smoothed by an exponential mean. Only cells with the baseline's
    loss, a baseline with a result and all seeds completed are included, shortest route first.
    `frame` has rows of `trials_frame`, `history` of `history_frame`.
    """
    frame = with_the_baselines_loss(frame)
    logged = history[history["key"] == TRAIN_LOSS]
    losses = {str(run): rows.set_index("step")["value"] for run, rows in logged.groupby("run")}
    trials = frame[frame["role"] == "trial"]
    trials = trials[(trials["state"] == "completed").groupby(trials["cell"]).transform("all")]
    trials = trials[~trials["reason"].isin(NO_RESULT.values())]
    trials = trials[trials["run"] != trials["baseline"]]  # a rate of 0 is the dense run itself
    trials = trials.drop_duplicates(["run", "baseline"]).sort_values(
        ["length", "start"], kind="stable"
    )
    curves = []
    for name, seeds in trials.groupby("cell", sort=False):
        pairs = zip(seeds["run"], seeds["baseline"])
        gaps = [losses[a] - losses[b] for a, b in pairs if a in losses and b in losses]
        paired = pd.concat(gaps, axis=1).dropna().sort_index() if gaps else pd.DataFrame()
        if len(paired):
            smooth = paired.ewm(halflife=halflife).mean()
            steps, length = smooth.index.to_numpy(np.int64), int(seeds["length"].iloc[0])
            half = float(half_width(smooth.iloc[-1].std(), len(gaps)))
            curves.append(StepGaps(str(name), length, steps, smooth.mean(axis=1).to_numpy(), half))
    return curves


def with_the_baselines_loss(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the same loss function as their baseline."""
    losses = frame.drop_duplicates("run").set_index("run")["loss"].fillna("")
    baseline = frame["baseline"].map(losses)
    return frame[baseline.isna() | (baseline == frame["loss"].fillna(""))]


def draw_gap_by_length(planned: Points, ax: style.Axes) -> None:
    """Draw a point with its interval for each route."""
    rows = planned.measured
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    ax.errorbar(rows["length"], rows["value"], style.bars(rows), fmt="o", color=style.GREEN)
    ax.set_title(f"intervals: {planned.measured_as}" if planned.measured_as else "")
    ax.set_xlabel("route length (blocks skipped)")
    style.value_axis(ax.yaxis, planned.metric, rows[NUMBERS])
    ax.locator_params(axis="x", integer=True)
    style.name_points(ax, zip(rows["length"], rows["value"], rows["route"]))


def draw_gap_and_quality(gap: Points, quality: Points, ax: style.Axes) -> None:
    """Draw named points coloured by route length; the two lines cross at the baseline."""
    x, y, length = gap.rows["value"], quality.rows["value"], gap.rows["length"]
    ax.axhline(0, color=style.BLACK, linewidth=0.5)
    ax.axvline(0, color=style.BLACK, linewidth=0.5)
    look: dict[str, Any] = {"fmt": "none", "ecolor": "#B0B0B0", "elinewidth": 0.6, "capsize": 0}
    ax.errorbar(x, y, style.bars(quality.rows), style.bars(gap.rows), **look)
    drawn = ax.scatter(x, y, c=length, cmap=style.SEQUENTIAL, s=16, zorder=3)
    style.colour_bar(ax, drawn, "blocks skipped")
    for axis, places in ((ax.xaxis, gap), (ax.yaxis, quality)):
        style.value_axis(axis, places.metric, places.rows[NUMBERS])
    style.name_points(ax, zip(x, y, gap.rows["route"]))


def step_looks(curves: Sequence[StepGaps]) -> Iterator[tuple[StepGaps, str, str]]:
    """Yield each curve with its dashes and colour.

    Lines are darker for shorter routes; routes of one length differ in dashes.
    """
    last, lengths = max(1, len(curves) - 1), [curve.length for curve in curves]
    for k, curve in enumerate(curves):
        dashes = ("-", "--", ":", "-.")[lengths[:k].count(curve.length) % 4]
        yield curve, dashes, style.shade(0.85 * k / last)


def draw_gap_over_steps(curves: Sequence[StepGaps], ax: style.Axes) -> None:
    """Draw one named line per cell, by `step_looks`; zero is the baseline."""
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    ends = []
    for curve, dashes, colour in step_looks(curves):
        ax.plot(curve.steps, curve.gaps, dashes, color=colour, linewidth=0.9)
        step, gap = curve.steps[-1], curve.gaps[-1]
        if np.isfinite(curve.half):
            ax.errorbar([step], [gap], [curve.half], color=colour)
        ends.append((step, gap, curve.name, colour))
    several = any(np.isfinite(curve.half) for curve in curves)
    ax.set_title("smoothed paired difference" + "; bars: 95% over seeds" * several)
    ax.set_xlabel("training step")
    gaps = np.concatenate([np.zeros(1), *(curve.gaps for curve in curves)])
    style.value_axis(ax.yaxis, delta_column(TRAIN_LOSS), gaps)
    style.name_ends(ax, ends)


def length_caption(planned: Points) -> str:
    """Return whether longer routes have the larger gap."""
    length, gap = (planned.measured[name].to_numpy(float) for name in ("length", "value"))
    places = [*zip(planned.measured["start"], planned.measured["end"])]
    order = order_text(length, gap, places, "longer routes have the larger gap")
    return LENGTH.format(n=len(gap), order=order) if order else "Too few routes for a trend."


def quality_caption(gap: Points, quality: Points) -> str:
    """Return whether the loss gap predicts the quality of the samples."""
    sign = metric_kind(quality.metric).sign or 1
    values = sign * quality.rows["value"].to_numpy(float)
    worse = "routes with a larger gap have worse samples"
    order = order_text(gap.rows["value"].to_numpy(float), values, routes(gap), worse)
    return QUALITY.format(n=len(values), order=order) if order else "Too few routes have both."


def steps_caption(curves: Sequence[StepGaps]) -> str:
    """Return the last gap of the shortest and longest route; if lengths are equal, of the lowest
    and highest curve."""
    first, last, kinds = curves[0], curves[-1], ("shortest route", "longest")
    if first.length == last.length:
        first, last = (end(curves, key=lambda curve: curve.gaps[-1]) for end in (min, max))
        kinds = "lowest curve", "highest"
    other = ""
    if first is not last:
        gap = number(last.gaps[-1], signed=True)
        then = "" if first.steps[-1] == last.steps[-1] else f" at step {last.steps[-1]}"
        other = f"; {kinds[1]} ({routed(last.name)}) {gap}{then}"
    gap, name = number(first.gaps[-1], signed=True), routed(first.name)
    return STEPS.format(step=first.steps[-1], kind=kinds[0], name=name, gap=gap, other=other)


def by_length(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the loss gap against the route's length."""
    planned = gap_by_length(records.frame) if GAP_TRAIN in records.frame else None
    if planned is not None and len(planned.measured) > 2:
        fig, (ax,) = style.figure(height=2.2)
        draw_gap_by_length(planned, ax)
        yield Drawn("gap_by_length", length_caption(planned), fig)


def with_quality(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the loss gap against the quality of samples."""
    for metric in sample_metrics(records.frame) if GAP_TRAIN in records.frame else ():
        gap, quality = gap_and_quality(records.frame, metric)
        if len(gap.rows) > 2:
            fig, (ax,) = style.figure(height=2.2)
            draw_gap_and_quality(gap, quality, ax)
            yield Drawn(named("gap_and_quality", metric), quality_caption(gap, quality), fig)


def over_steps(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the loss gap over training."""
    if curves := gap_over_steps(records.frame, records.history):
        fig, (ax,) = style.figure(height=max(2.2, 0.5 + 0.13 * len(curves)))
        draw_gap_over_steps(curves, ax)
        yield Drawn("gap_over_steps", steps_caption(curves), fig)
