"""The training-loss gap to dense over training (Fig. S10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.points import (
    Array,
    Drawn,
    SweepRecords,
)
from tread_lab.records.metric_names import TRAIN_LOSS, delta_column
from tread_lab.results import NO_RESULT, number, routed

HALFLIFE = 3.0  # logged entries after which a difference counts half
STEPS = (
    "The difference is the training loss with routes on, minus dense's at the same step. It is"
    " expected to be above 0 and does not rank cells. At step {step} the {kind} ({name}) is at"
    " {gap}{other}."
)


@dataclass(frozen=True)
class StepGaps:
    """The smoothed paired difference of the training loss of one cell.

    Attributes:
        length: blocks skipped.
        steps, gaps: logged steps, and the mean over seeds.
    """

    name: str
    length: int
    steps: NDArray[np.int64]
    gaps: Array


def gap_over_steps(
    frame: pd.DataFrame, history: pd.DataFrame, *, halflife: float = HALFLIFE
) -> list[StepGaps]:
    """Return differences of training losses to the baseline of the same seed at equal steps.

    Runs of one seed share batches, noise and label drops, so the difference is far steadier than
    either curve. Smoothing is an exponential mean of the differences; cells that train the loss of
    their baseline, all of whose seeds completed, without those whose baseline ended without a
    result, the shortest route first, from rows of `trials_frame` and of `history_frame`.
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
        mean = pd.concat(gaps, axis=1).dropna().mean(axis=1).sort_index() if gaps else pd.Series()
        if len(mean):
            smooth = mean.ewm(halflife=halflife).mean()
            steps, length = smooth.index.to_numpy(np.int64), int(seeds["length"].iloc[0])
            curves.append(StepGaps(str(name), length, steps, smooth.to_numpy(float)))
    return curves


def with_the_baselines_loss(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose training loss may be compared with their baseline's: the same loss."""
    losses = frame.drop_duplicates("run").set_index("run")["loss"].fillna("")
    baseline = frame["baseline"].map(losses)
    return frame[baseline.isna() | (baseline == frame["loss"].fillna(""))]


def draw_gap_over_steps(curves: Sequence[StepGaps], ax: style.Axes) -> None:
    """Draw one line per cell; zero is the baseline.

    Lines are darker for shorter routes, and those of one length have dashes of their own.
    """
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    last, lengths = max(1, len(curves) - 1), [curve.length for curve in curves]
    for k, curve in enumerate(curves):
        dashes = ("-", "--", ":", "-.")[lengths[:k].count(curve.length) % 4]
        look: dict[str, Any] = {"color": style.SEQUENTIAL(0.92 * k / last), "linewidth": 0.9}
        ax.plot(curve.steps, curve.gaps, dashes, label=style.arrow(curve.name), **look)
    style.legend(ax, inside=0)
    ax.set_title(f"paired differences, smoothed over {HALFLIFE:g} logged entries")
    ax.set_xlabel("training step")
    gaps = np.concatenate([np.zeros(1), *(curve.gaps for curve in curves)])
    style.value_axis(ax.yaxis, delta_column(TRAIN_LOSS), gaps)


def steps_caption(curves: Sequence[StepGaps]) -> str:
    """Return the last gap of the shortest and the longest route, or of the lowest and the highest
    curve where lengths are equal."""
    first, last, kinds = curves[0], curves[-1], ("shortest route", "longest")
    if first.length == last.length:
        first, last = (end(curves, key=lambda curve: curve.gaps[-1]) for end in (min, max))
        kinds = "lowest curve", "highest"
    other = ""
    if first is not last:
        gap = number(last.gaps[-1], signed=True)
        then = "" if first.steps[-1] == last.steps[-1] else f" at step {last.steps[-1]}"
        other = f", the {kinds[1]} ({routed(last.name)}) at {gap}{then}"
    gap, name = number(first.gaps[-1], signed=True), routed(first.name)
    return STEPS.format(step=first.steps[-1], kind=kinds[0], name=name, gap=gap, other=other)


def over_steps(records: SweepRecords) -> Iterator[Drawn]:
    """Draw the loss gap over training."""
    if curves := gap_over_steps(records.frame, records.history):
        fig, (ax,) = style.figure(height=max(2.2, 0.5 + 0.13 * len(curves)))
        draw_gap_over_steps(curves, ax)
        yield Drawn("gap_over_steps", steps_caption(curves), fig)
