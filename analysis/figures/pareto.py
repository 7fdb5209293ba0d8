"""Pareto fronts: quality against training FLOPs, and the gap against what a cell saves of dense."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import (
    Drawn,
    FigureKind,
    SweepRecords,
    named,
    quality_metrics,
    sample_metrics,
)
from tread_lab.analysis.figures.placements import Array, endings_of, measured_as
from tread_lab.analysis.figures.point_names import write_names
from tread_lab.analysis.figures.sentences import joined, listed, number, quantity, routed
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
from tread_lab.specs.errors import UserError

SAVED, SHARE, BUSY = "saved/amount", "saved/share", "saved/disturbed"
NAMES = {ENERGY: "energy", DEVICE_HOURS: "device-hours"}
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T"}
_NAMED = 30  # points at most that have their name beside them


@dataclass(frozen=True, kw_only=True)
class Front:
    """One point per cell; arrays are [points].

    Attributes:
        metric: the quality, or its difference to the baseline.
        value, low, high: it and its interval.
        front: those that no other point beats, see `pareto_front`.
        endings: state -> names of the cells without a number.
        measured_as: what the intervals are over.
    """

    metric: str
    value: Array
    low: Array
    high: Array
    front: NDArray[np.bool_]
    endings: dict[str, tuple[str, ...]] = field(default_factory=dict)
    measured_as: str = ""


@dataclass(frozen=True, kw_only=True)
class Pareto(Front):
    """Quality and cost of cells, baselines among them; for a gap a baseline is 0.

    Attributes:
        cells: (role, cell) of each, as `cells_frame` has them.
        cost: training FLOPs, routes counted; over the baseline's where there is one baseline.
        relative: whether `cost` is over the baseline's.
    """

    cells: tuple[tuple[str, str], ...]
    cost: Array
    relative: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The cells' names."""
        return tuple(cell for _, cell in self.cells)

    @property
    def dense(self) -> NDArray[np.bool_]:
        """[points], which are baselines."""
        return np.array([role == "baseline" for role, _ in self.cells], dtype=bool)


def pareto(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Pareto:
    """Return every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, it is no measure of quality, or no run has recorded its cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"{metric} is no measure of quality, so it has no Pareto front")
    require_metric(frame, TRAIN_FLOPS)
    cells = cells_frame(frame)
    dense = cells["role"] == "baseline"
    if metric_kind(metric).compared == "gap":
        cells[metric] = cells[metric].mask(dense & cells[metric].isna(), 0.0)
    done = (cells["state"] == "completed") & cells[metric].notna() & cells[TRAIN_FLOPS].notna()
    endings = endings_of(cells[~done], "cell")
    cells, dense = cells[done], dense[done]
    relative = int(dense.sum()) == 1
    cost, value, low, high = (
        cells[column].to_numpy(float)
        for column in (TRAIN_FLOPS, metric, metric + LOW, metric + HIGH)
    )
    cost = cost / cost[dense] if relative else cost
    return Pareto(
        metric=metric,
        cells=tuple(zip(cells["role"], cells["cell"])),
        cost=cost,
        relative=relative,
        value=value,
        low=low,
        high=high,
        front=pareto_front(cost, value, lower=metric_kind(metric).sign > 0),
        endings=endings,
        measured_as=measured_as(cells[~dense], metric),
    )


def pareto_front(cost: Array, value: Array, *, lower: bool = True) -> NDArray[np.bool_]:
    """Return which points no other beats: none costs as little and is as good, or better in one."""
    front = np.zeros(len(cost), dtype=bool)
    signed = value if lower else -value
    best = np.inf
    for level in np.unique(cost):
        at = np.flatnonzero(cost == level)
        least = signed[at].min()
        if least < best:
            front[at[signed[at] == least]] = True
            best = least
    return front


@dataclass(frozen=True, kw_only=True)
class Savings(Front):
    """Differences and savings of cells; the baseline of each is at 0 and 0.

    Attributes:
        cost: what is saved: `energy/joules`, or `cost/device_hours`.
        names: the route of each cell, with its other axes where routes alone are not unique, and
            with `*` where its hours were disturbed by other work on the machine.
        saved: what the baseline spent less what the cell spent, in J or h, averaged over seeds.
        share: the same over what the baseline spent.
        dense_front: whether no cell beats dense in both.
        unknown: cells that were compared, and of which nobody knows what they spent.
        family: whether any cell starts from another run, whose training is not counted.
    """

    cost: str
    names: tuple[str, ...]
    saved: Array
    share: Array
    dense_front: bool = True
    unknown: tuple[str, ...] = ()
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


def draw_pareto(points: Pareto, ax: style.Axes) -> None:
    """Draw points with intervals, the front joined by steps and named; dense runs are diamonds.

    Of a front without room for all its names the best have theirs.
    """
    power, value, spread = style.scaled(points.value, points.low, points.high)
    is_gap = metric_kind(points.metric).compared == "gap"
    if is_gap:
        ax.axhline(0, color=style.BLACK, linewidth=0.7)
    routes = ~points.dense
    for at, shape, colour in (
        (routes & ~points.front, "o", style.GREY),
        (routes & points.front, "o", style.GREEN),
        (points.dense, "D", style.BLACK),
    ):
        bars = spread[:, at]
        ax.errorbar(points.cost[at], value[at], bars, fmt=shape, color=colour, elinewidth=0.7)
    lines = [_draw_front(ax, points, value)]
    if not points.relative:
        style.cost_axis(ax, points.cost)
    ax.margins(0.16, 0.14)
    relative = " relative to dense (1 = dense)" if points.relative else ""
    ax.set_xlabel("training FLOPs" + relative)
    _label(ax, points, power)
    if is_gap:
        lines.append(np.array([[[x, 0.0] for x in ax.get_xlim()]]))
    front = np.flatnonzero(points.front)[np.argsort(-points.cost[points.front], kind="stable")]
    order = dict.fromkeys([*np.flatnonzero(points.dense)[:1].tolist(), *front.tolist()])
    places = np.stack([points.cost, value], axis=1)
    write_names(ax, points.names, places, spread.T, np.concatenate(lines), order=order)


def _draw_front(ax: style.Axes, points: Pareto, value: Array) -> Array:
    """Draw the front and return its steps: [steps, 2, 2], the ends of level and upright lines."""
    order = np.flatnonzero(points.front)[np.argsort(points.cost[points.front], kind="stable")]
    x, y = points.cost[order], value[order]
    ax.plot(x, y, color=style.GREEN, linewidth=0.8, zorder=0, drawstyle="steps-post")
    corners = np.stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]], axis=1)
    return np.stack([corners[:-1], corners[1:]], axis=1)


def _label(ax: style.Axes, points: Front, power: int) -> None:
    """Say what the ordinate and the intervals are, and below the axes which cells lack a number."""
    ax.set_ylabel(style.label(points.metric).replace("\n", "") + style.times(power))
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    lines = []
    for state, names in points.endings.items():
        look = style.STATE_LOOKS[state]
        lines.append(f"{look.letter} {look.text}: {listed(list(map(style.arrow, names)))}")
    if lines:
        ax.figure.supxlabel("\n".join(lines), fontsize=6.5, x=0.02, ha="left")


def pareto_caption(points: Pareto) -> str:
    """Return the cells on the Pareto front, and whether the dense run is one of them."""
    front = [k for k in np.argsort(points.cost) if points.front[k]]
    if not front:
        return "No cell has both numbers yet."
    heading = "training FLOPs relative to dense" if points.relative else "training FLOPs"
    names = [
        f"{routed(points.names[k])} ({quantity(points.cost[k], '' if points.relative else 'FLOP')})"
        for k in front
    ]
    parts = [
        f"Pareto front, cheapest first ({heading}): {listed(names)}.",
        "No cell is both cheaper and better than one of these.",
    ]
    if points.dense[front].any():
        parts.append("The dense run is on it: no cheaper cell is as good.")
    elif points.dense.any():
        parts.append(
            "The dense run is not on it: another cell costs less and is as good or better."
        )
    if not points.measured_as:
        parts.append("No intervals: one seed.")
    return " ".join(parts)


def _fronts(records: SweepRecords) -> Iterator[Drawn]:
    flops = records.frame.get(TRAIN_FLOPS, pd.Series(dtype=float)).dropna()
    varied = len(flops) > 0 and flops.max() > 1.01 * flops.min()  # not where they are matched
    for metric in quality_metrics(records.frame)[:2]:
        points = pareto(records.frame, metric) if varied else None
        if points is not None and len(points.value) > 2:
            fig, (ax,) = style.figure(height=2.5)
            draw_pareto(points, ax)
            yield Drawn(named("pareto", metric), pareto_caption(points), fig, metric)


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
    _label(ax, found, power)
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


def savings_caption(found: Savings, unnamed: list[str]) -> str:
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


def _savings(records: SweepRecords) -> Iterator[Drawn]:
    frame = records.frame
    for metric in (GAP_HELDOUT, *sample_metrics(frame)[:1]):
        found = savings(frame, metric) if metric in frame else None
        if found is not None and len(found.saved) > 1:
            fig, (ax,) = style.figure(width=style.PAGE, height=3.2)
            unnamed = draw_savings(found, ax)
            yield Drawn(named("savings", metric), savings_caption(found, unnamed), fig, metric)


PARETO = FigureKind("Quality against training FLOPs", _fronts)
SAVINGS = FigureKind("Gap to dense against what is saved", _savings, compares=True)
