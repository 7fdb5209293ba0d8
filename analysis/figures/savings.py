"""The gap to dense against what a cell saves of its baseline's energy, or of its device-hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named, sample_metrics
from tread_lab.analysis.figures.pareto import pareto_front, tell_endings
from tread_lab.analysis.figures.placements import Array, endings_of, measured_as
from tread_lab.analysis.figures.point_names import write_names
from tread_lab.analysis.figures.sentences import joined, number, routed
from tread_lab.frames import (
    HIGH,
    LOW,
    cells_frame,
    delta_column,
    disturbed,
    of_baseline,
    require_metric,
    with_delta,
)
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    ENERGY,
    FAMILY_FLOPS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_SECONDS,
    metric_kind,
)

SAVED, SHARE, BUSY = "saved/amount", "saved/share", "saved/disturbed"
NAMES = {ENERGY: "energy", DEVICE_HOURS: "device-hours"}
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T"}
_NAMED = 30  # points at most that have their name beside them


@dataclass(frozen=True)
class Savings:
    """One point per cell; the baseline of each is at 0 and 0.

    Attributes:
        metric: the difference to the baseline.
        cost: what is saved: `energy/joules`, or `cost/device_hours`.
        names: the route of each cell, with its other axes where routes alone are not unique, and
            with `*` where its hours were disturbed by other work on the machine.
        saved: what the baseline spent less what the cell spent, in J or h, averaged over seeds.
        share: the same over what the baseline spent.
        value, low, high: the difference and its interval.
        front: [points], those that no other cell, and not dense, beats in both.
        dense_front: whether no cell beats dense in both.
        unknown: cells that were compared, and of which nobody knows what they spent.
        endings: state -> names of the cells without a difference.
        measured_as: what the intervals are over.
        family: whether any cell starts from another run, whose training is not counted.
    """

    metric: str
    cost: str
    names: tuple[str, ...]
    saved: Array
    share: Array
    value: Array
    low: Array
    high: Array
    front: NDArray[np.bool_]
    dense_front: bool = True
    unknown: tuple[str, ...] = ()
    endings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    measured_as: str = ""
    family: bool = False


def spent(frame: pd.DataFrame) -> tuple[str, pd.Series[float]] | None:
    """Return what trials cost and its column: joules, else device-hours; `None` without either.

    Joules count where more than half of the trials that have device-hours and a baseline have
    joules too, and so have their baselines.
    """
    hours = frame[TRAIN_SECONDS] / 3600 if TRAIN_SECONDS in frame else None
    if ENERGY in frame:
        compared = (frame[ENERGY] / of_baseline(frame, ENERGY)).notna().sum()
        timed = 0 if hours is None else (hours / of_baseline(frame, TRAIN_SECONDS)).notna().sum()
        if 2 * compared > timed:
            return ENERGY, frame[ENERGY]
    return None if hours is None else (DEVICE_HOURS, hours)


def savings(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Savings | None:
    """Return every completed cell's difference and what it saved, from rows of `trials_frame`.

    `None` where no run has recorded what it spent.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    column, found = delta_column(metric), spent(frame)
    if found is None:
        return None
    cost, values = found
    trials = with_delta(frame, metric).assign(**{cost: values})
    dense = of_baseline(trials, cost)
    busy = disturbed(trials, cost) if cost == DEVICE_HOURS else pd.Series(False, trials.index)
    trials = trials.assign(
        **{SAVED: dense - values, SHARE: 1 - values / dense, BUSY: busy.astype(float)}
    )
    cells = cells_frame(trials[trials["role"] == "trial"])
    name = "cell" if cells["route"].duplicated().any() else "route"
    compared = (cells["state"] == "completed") & cells[column].notna()
    done = compared & cells[SAVED].notna()
    endings = endings_of(cells[~compared], name)
    unknown, cells = tuple(cells.loc[compared & ~done, name]), cells[done]
    saved, share, value, low, high = (
        cells[key].to_numpy(float) for key in (SAVED, SHARE, column, column + LOW, column + HIGH)
    )
    lower = metric_kind(metric).sign >= 0
    counted = np.where(cells[BUSY] > 0, np.inf, -saved)  # what is disturbed beats nobody
    front = pareto_front(np.append(counted, 0.0), np.append(value, 0.0), lower=lower)
    front[:-1] &= np.isfinite(counted)
    family = FAMILY_FLOPS in cells and bool((cells[FAMILY_FLOPS] > cells[TRAIN_FLOPS]).any())
    return Savings(
        metric=column,
        cost=cost,
        names=tuple(cells[name] + np.where(cells[BUSY] > 0, "*", "")),
        saved=saved,
        share=share,
        value=value,
        low=low,
        high=high,
        front=front[:-1],
        dense_front=bool(front[-1]),
        unknown=unknown,
        endings=endings,
        measured_as=measured_as(cells, column),
        family=family,
    )


def draw_savings(found: Savings, ax: style.Axes) -> list[str]:
    """Draw points with intervals and names, dense as a diamond; return names without room.

    Blue is better than dense, orange worse; a point is hollow where its interval holds zero. The
    Pareto front is green.
    """
    power, value, spread = style.scaled(found.value, found.low, found.high)
    across = style.power_of_ten(found.saved)
    saved = found.saved / 10.0**across
    for line in (ax.axhline, ax.axvline):
        line(0, color=style.BLACK, linewidth=0.5, zorder=0)
    on_front = np.append(found.front, found.dense_front)
    ends = np.stack([np.append(saved, 0.0), np.append(value, 0.0)])[:, on_front]
    front = ends[:, np.argsort(ends[0], kind="stable")]
    ax.plot(*front, color=style.GREEN, linewidth=0.8, zorder=0, drawstyle="steps-pre")
    undecided = style.holds_zero(found.low, found.high)
    for k, (x, y) in enumerate(zip(saved, value)):
        bar = spread[:, k : k + 1]
        style.draw_difference(
            ax, found.metric, x, y, value=y, hollow=undecided[k], yerr=bar, elinewidth=0.7
        )
    ax.plot([0], [0], "D", color=style.BLACK)
    ax.margins(0.1, 0.12)
    ax.set_xlabel(f"{NAMES[found.cost]} saved relative to dense ({_unit(found.cost, across)})")
    ax.set_ylabel(style.label(found.metric).replace("\n", "") + style.times(power))
    ax.set_title(f"intervals: {found.measured_as}" if found.measured_as else "")
    tell_endings(ax, found.endings)
    corners = np.stack([np.repeat(front[0], 2)[:-1], np.repeat(front[1], 2)[1:]], axis=1)
    return _named(found, ax, np.stack([saved, value], axis=1), spread.T, corners)


def _named(found: Savings, ax: style.Axes, places: Array, bars: Array, front: Array) -> list[str]:
    """Write `dense` and the names: of the front first, then of those that save most."""
    by_weight = sorted(range(len(places)), key=lambda k: (not found.front[k], -found.saved[k]))
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    axes = np.array([[[left, 0.0], [right, 0.0]], [[0.0, low], [0.0, high]]])
    unnamed = write_names(
        ax,
        [*found.names, "dense"],
        np.append(places, [[0.0, 0.0]], axis=0),
        np.append(bars, [[0.0, 0.0]], axis=0),
        np.concatenate([axes, np.stack([front[:-1], front[1:]], axis=1)]),
        order=[len(places), *by_weight[:_NAMED]],
    )
    return [found.names[k] for k in [*unnamed, *by_weight[_NAMED:]] if k < len(places)]


def _unit(cost: str, power: int) -> str:
    """Return `MJ` for joules in units of 10^6, or `h` with its power of ten."""
    if cost == ENERGY and power in _PREFIXES:
        return f"{_PREFIXES[power]}J"
    unit = metric_kind(cost).unit
    return rf"$10^{{{power}}}$ {unit}" if power else unit


def caption(found: Savings, unnamed: list[str]) -> str:
    """Return the cells on the front with what they save, and what is left out."""
    what = NAMES[found.cost]
    front = sorted(np.flatnonzero(found.front), key=lambda k: found.saved[k])
    shares = [f"{routed(found.names[k])} ({number(100 * found.share[k])}%)" for k in front]
    sentences = [f"No cell saves {what} or is better than dense."]
    if front:
        sentences = [
            f"No other cell is as good and saves as much of the {what}: {', '.join(shares)}."
        ]
    if np.isfinite(found.low).any():
        sentences.append("A point is hollow where its 95% interval holds zero.")
    else:
        sentences.append("No intervals: one seed.")
    if any(name.endswith("*") for name in found.names):
        sentences.append(
            "* The hours were disturbed by other work on the machine: they fall by more than FLOPs"
            " allow, or far from the other cells. Such a cell is not on the front."
        )
    if found.family:
        sentences.append("What was spent on runs that a cell starts from is not counted.")
    if found.unknown:
        sentences.append(f"Not metered: {joined(found.unknown)}.")
    if unnamed:
        sentences.append(f"Without room for a name: {joined(unnamed)}.")
    return " ".join(sentences)


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    frame = records.frame
    for metric in (GAP_HELDOUT, *sample_metrics(frame)[:1]):
        found = savings(frame, metric) if metric in frame else None
        if found is not None and len(found.saved) > 1:
            fig, (ax,) = style.figure(width=style.PAGE, height=3.2)
            unnamed = draw_savings(found, ax)
            yield Drawn(named("savings", metric), caption(found, unnamed), fig, metric)


SAVINGS = FigureKind("Gap to dense against what is saved", _drawn, compares=True)
