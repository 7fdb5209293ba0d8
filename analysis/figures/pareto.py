"""Pareto fronts: quality against training FLOPs, and the gap against what a cell saves of dense."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import (
    Drawn,
    SweepRecords,
    figure_kind,
    named,
    quality_metrics,
    sample_metrics,
)
from tread_lab.analysis.figures.placements import Array, endings_of, measured_as
from tread_lab.analysis.figures.point_names import write_names
from tread_lab.analysis.figures.sentences import joined, listed, number, routed
from tread_lab.frames import (
    HIGH,
    LOW,
    cells_frame,
    delta_column,
    disturbed,
    of_baseline,
    require_metric,
    with_delta,
    with_metrics,
)
from tread_lab.frames.ranking_table import spent
from tread_lab.records.metric_names import (
    DEVICE_HOURS,
    ENERGY,
    FAMILY_FLOPS,
    GAP_HELDOUT,
    TRAIN_FLOPS,
    metric_kind,
)
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import quantity, ratio

SAVED, SHARE, BUSY = "saved/amount", "saved/share", "saved/disturbed"
NAMES = {ENERGY: "energy", DEVICE_HOURS: "device-hours"}
_PREFIXES = {0: "", 3: "k", 6: "M", 9: "G", 12: "T"}
_NAMED = 30  # cells at most that have their name beside them
_DISTURBED = (
    "* FLOPs do not explain the hours, so other work ran beside the runs; such a cell is not on the"
    " front."
)


@dataclass(frozen=True, kw_only=True)
class Front:
    """Cells and baselines, by what they cost or save and by a metric; arrays are [points].

    Attributes:
        metric: the quality, or its difference to the baseline.
        cells: (role, name) of each, as `cells_frame` has them; in savings the route where that is
            unique, with `*` where its hours were disturbed by other work on the machine.
        cost: training FLOPs, routes counted, over the baseline's where there is one baseline; in
            savings what the baseline spent less what the cell spent, averaged over seeds.
        value, low, high: the metric and its interval.
        front: those that no other point beats, see `pareto_front`.
        endings: state -> names of the cells without a number.
        measured_as: what the intervals are over.
        relative: whether `cost` is over the baseline's.
        saved: what is saved, joules or device-hours; empty where `cost` is what is spent.
        share: what is saved over what the baseline spent.
        notes: what the caption says beside the front.
    """

    metric: str
    cells: tuple[tuple[str, str], ...]
    cost: Array
    value: Array
    low: Array
    high: Array
    front: NDArray[np.bool_]
    endings: dict[str, tuple[str, ...]]
    measured_as: str
    relative: bool = False
    saved: str = ""
    share: Array = field(default_factory=lambda: np.zeros(0))
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The cells' names."""
        return tuple(cell for _, cell in self.cells)

    @property
    def dense(self) -> NDArray[np.bool_]:
        """[points], which are baselines."""
        return np.array([role == "baseline" for role, _ in self.cells], dtype=bool)


def pareto(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Front:
    """Return every completed cell's quality and cost, from the rows of `trials_frame`.

    Raises:
        UserError: no such metric, it is no measure of quality, or no run has recorded its cost.
    """
    require_metric(frame, metric)
    if metric_kind(metric).nature != "quality":
        raise UserError(f"{metric} is no measure of quality, so it has no Pareto front")
    require_metric(frame, TRAIN_FLOPS)
    return front_of_cells(cells_frame(with_metrics(frame, metric, TRAIN_FLOPS)), metric)


def front_of_cells(cells: pd.DataFrame, metric: str) -> Front:
    """Return `pareto` from the rows of `cells_frame`."""
    kind = metric_kind(metric)
    dense = cells["role"] == "baseline"
    if kind.compared == "gap":
        cells = cells.assign(**{metric: cells[metric].mask(dense & cells[metric].isna(), 0.0)})
    done = (cells["state"] == "completed") & cells[metric].notna() & cells[TRAIN_FLOPS].notna()
    endings = endings_of(cells[~done], "cell")
    cells, dense = cells[done], dense[done]
    cost, value, low, high = (
        cells[column].to_numpy(float)
        for column in (TRAIN_FLOPS, metric, metric + LOW, metric + HIGH)
    )
    relative = int(dense.sum()) == 1
    cost = cost / cost[dense] if relative else cost
    return Front(
        metric=metric,
        cells=tuple(zip(cells["role"], cells["cell"])),
        cost=cost,
        value=value,
        low=low,
        high=high,
        front=pareto_front(cost, value, lower=kind.sign > 0),
        endings=endings,
        measured_as=measured_as(cells[~dense], metric),
        relative=relative,
    )


def vary_in_cost(rows: pd.DataFrame) -> bool:
    """Return whether trials or cells differ in training FLOPs by more than matching leaves."""
    flops = rows.get(TRAIN_FLOPS, pd.Series(dtype=float)).dropna()
    return len(flops) > 0 and bool(flops.max() > 1.01 * flops.min())


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


def savings(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Front | None:
    """Return every completed cell's difference and what it saved, dense last, at 0 and 0.

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
    endings, unknown = endings_of(cells[~compared], name), list(cells.loc[compared & ~done, name])
    cells = cells[done]
    is_busy = cells[BUSY].to_numpy(float) > 0
    saved, share, value, low, high = (
        np.append(cells[key].to_numpy(float), of_dense)
        for key, of_dense in (
            (SAVED, 0.0), (SHARE, 0.0), (column, 0.0), (column + LOW, np.nan),
            (column + HIGH, np.nan),
        )
    )  # fmt: skip
    counted = np.where(np.append(is_busy, False), np.inf, -saved)  # what is disturbed beats nobody
    front = pareto_front(counted, value, lower=metric_kind(metric).sign >= 0)
    notes = [_DISTURBED] if is_busy.any() else []
    if FAMILY_FLOPS in cells and (cells[FAMILY_FLOPS] > cells[TRAIN_FLOPS]).any():
        notes.append("What was spent on runs that a cell starts from is not counted.")
    if unknown:
        notes.append(f"Not metered: {joined(unknown)}.")
    names = cells[name] + np.where(is_busy, "*", "")
    return Front(
        metric=column,
        cells=(*(("trial", name) for name in names), ("baseline", "dense")),
        cost=saved,
        value=value,
        low=low,
        high=high,
        front=front & np.isfinite(counted),
        endings=endings,
        measured_as=measured_as(cells, column),
        saved=cost,
        share=share,
        notes=tuple(notes),
    )


def draw_front(points: Front, ax: style.Axes) -> list[str]:
    """Draw points with intervals, the front joined by steps; return the names without room.

    Dense runs are diamonds. What costs FLOPs is green on the front, and the front is named. What
    saves is blue if it is better than dense, orange if worse, and hollow where its interval holds
    zero; the front is named, then what saves most.
    """
    spread = style.bars(points.value, points.low, points.high)
    undecided = style.holds_zero(points.low, points.high) & bool(points.saved)
    for k, (x, y) in enumerate(zip(points.cost, points.value)):
        look: dict[str, Any] = {"fmt": "D" if points.dense[k] else "o", "elinewidth": 0.7}
        bar = spread[:, k : k + 1]
        style.draw_point(ax, x, y, _colour(points, k), hollow=undecided[k], yerr=bar, **look)
    lines = [_draw_steps(points, ax)]
    style.value_axis(ax.yaxis, points.metric, points.value, points.low, points.high)
    ax.set_ylabel(ax.get_ylabel().replace("\n", ""))
    ax.set_title(f"intervals: {points.measured_as}" if points.measured_as else "")
    _draw_costs(points, ax)
    ax.margins(0.14, 0.13)
    if points.saved or metric_kind(points.metric).compared == "gap":
        ax.axhline(0, color=style.BLACK, linewidth=0.6, zorder=0)
        lines.append(np.array([[[x, 0.0] for x in ax.get_xlim()]]))
    if points.saved:
        ax.axvline(0, color=style.BLACK, linewidth=0.6, zorder=0)
        lines.append(np.array([[[0.0, y] for y in ax.get_ylim()]]))
    _say_endings(points, ax)
    cells = np.flatnonzero(~points.dense & (bool(points.saved) | points.front)).tolist()
    order = sorted(cells, key=lambda k: (not points.front[k], -points.cost[k]))
    places = np.stack([points.cost, points.value], axis=1)
    first = [*np.flatnonzero(points.dense)[:1].tolist(), *order[:_NAMED]]
    left = write_names(ax, points.names, places, spread.T, np.concatenate(lines), order=first)
    return [points.names[k] for k in [*left, *order[_NAMED:]] if not points.dense[k]]


def _colour(points: Front, k: int) -> str:
    if points.dense[k]:
        return style.BLACK
    if points.saved:
        return style.difference_colour(points.metric, points.value[k])
    return style.GREEN if points.front[k] else style.GREY


def _draw_steps(points: Front, ax: style.Axes) -> Array:
    """Draw the front and return its steps: [steps, 2, 2], the ends of level and upright lines."""
    order = np.flatnonzero(points.front)[np.argsort(points.cost[points.front], kind="stable")]
    x, y = np.repeat(points.cost[order], 2), np.repeat(points.value[order], 2)
    corners = np.stack([x[:-1], y[1:]] if points.saved else [x[1:], y[:-1]], axis=1)
    ax.plot(*corners.T, color=style.GREEN, linewidth=0.8, zorder=0, label="front")
    return np.stack([corners[:-1], corners[1:]], axis=1)


def _draw_costs(points: Front, ax: style.Axes) -> None:
    """Say what the abscissa is; joules have the unit that suits them."""
    if not points.saved:
        relative = " relative to dense (1 = dense)" if points.relative else ""
        ax.set_xlabel("training FLOPs" + relative)
        if not points.relative:
            style.cost_axis(ax, points.cost)
        return
    power, unit = style.power_of_ten(points.cost), metric_kind(points.saved).unit
    if points.saved == ENERGY and power in _PREFIXES:
        unit = f"{_PREFIXES[power]}J"
    elif power:
        unit = rf"$10^{{{power}}}$ {unit}"
    less = "; negative: costs more" if (points.cost <= 0).all() else ""
    text = f"{NAMES[points.saved]} saved relative to dense ({unit}{less})"
    style.scale_axis(ax.xaxis, text, power)


def _say_endings(points: Front, ax: style.Axes) -> None:
    """Say below the axes which cells lack a number."""
    lines = []
    for state, names in points.endings.items():
        look = style.STATE_LOOKS[state]
        lines.append(f"{look.letter} {look.text}: {listed(list(map(style.arrow, names)))}")
    if lines:
        ax.figure.supxlabel("\n".join(lines), fontsize=6.5, x=0.02, ha="left")


def pareto_caption(points: Front) -> str:
    """Return the cells on the Pareto front, and whether the dense run is one of them."""
    front = [k for k in np.argsort(points.cost) if points.front[k]]
    if not front:
        return "No cell has both numbers yet."
    heading = "training FLOPs relative to dense" if points.relative else "training FLOPs"
    price = ratio if points.relative else partial(quantity, unit="FLOP")
    names = [f"{routed(points.names[k])} ({price(points.cost[k])})" for k in front]
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


def _spent(share: float) -> str:
    """Return `costs 12% less` than dense, of what a share was saved."""
    return f"costs {number(100 * abs(share))}% {'less' if share > 0 else 'more'}"


def savings_caption(found: Front, unnamed: Sequence[str]) -> str:
    """Return the cells on the front with what they save, and what is left out."""
    what = NAMES[found.saved]
    front = sorted(np.flatnonzero(found.front & ~found.dense), key=lambda k: found.cost[k])
    shares = [f"{routed(found.names[k])} ({_spent(found.share[k])})" for k in front]
    intervals = "A point is hollow where its 95% interval holds zero."
    none = f"No cell saves {what} or is better than dense."
    if _DISTURBED in found.notes:
        none = f"Of the cells with undisturbed times none saves {what} or is better than dense."
    sentences = [
        f"On the front (no other cell is as good for less {what}): {', '.join(shares)}."
        if front
        else none,
        intervals if np.isfinite(found.low).any() else "No intervals: one seed.",
        *found.notes,
    ]
    if unnamed:
        sentences.append(f"Without room for a name: {joined(unnamed)}.")
    return " ".join(sentences)


@figure_kind()
def costs(records: SweepRecords) -> Iterator[Drawn]:
    """Quality against training FLOPs"""
    for metric in quality_metrics(records.frame)[:2]:
        points = pareto(records.frame, metric) if vary_in_cost(records.frame) else None
        if points is not None and len(points.value) > 2:
            fig, (ax,) = style.figure(height=2.5)
            draw_front(points, ax)
            yield Drawn(named("pareto", metric), pareto_caption(points), fig, metric)


@figure_kind(compares=True)
def saved(records: SweepRecords) -> Iterator[Drawn]:
    """Gap to dense against what is saved"""
    frame = records.frame
    for metric in (GAP_HELDOUT, *sample_metrics(frame)[:1]):
        found = savings(frame, metric) if metric in frame else None
        if found is not None and len(found.value) > 2:
            fig, (ax,) = style.figure(width=style.PAGE, height=3.2)
            unnamed = draw_front(found, ax)
            yield Drawn(named("savings", metric), savings_caption(found, unnamed), fig, metric)
