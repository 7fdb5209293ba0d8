"""Route placement as bars of the difference to the baseline, Fig. 8's routes from short to long."""

# K bars

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.placements import (
    Ints,
    Placements,
    best_route,
    commonest,
    placements,
    published_placements,
    rank_correlation,
)
from tread_lab.analysis.figures.sentences import number, trend
from tread_lab.analysis.tables import published
from tread_lab.records.metric_names import GAP_HELDOUT
from tread_lab.specs.errors import UserError


@dataclass(frozen=True)
class RouteBars:
    """Two families of routes, each from its shortest to its longest.

    Attributes:
        start, end: i of the family i->j, and j of the other family i->j.
        places: [K], the routes that share their start, then the others that share their end.
        split: how many bars the first family has.
    """

    start: int
    end: int
    places: Placements
    split: int


def route_bars(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> RouteBars:
    """Return the bars of one metric from the rows of `trials_frame`.

    The two families share the start and the end that most routes have.

    Raises:
        UserError: no route was planned, no such metric, or several cells share a route.
    """
    places = placements(frame, metric)
    if not places.routes:
        raise UserError("this sweep places no single route: nothing to compare with the baseline")
    return _families(places)


def published_bars() -> RouteBars:
    """Return the published values (see `published.FIG8`), of another model, data and metric."""
    return _families(published_placements())


def _families(places: Placements) -> RouteBars:
    start, end = commonest(places.start), commonest(places.end)
    order = np.argsort(places.length, kind="stable")
    shares_start = places.start[order] == start
    shares_end = (places.end[order] == end) & ~shares_start
    rows = np.concatenate([order[shares_start], order[shares_end]])
    return RouteBars(start, end, places.take(rows), int(shares_start.sum()))


def agreement(places: Placements) -> tuple[float, float, int]:
    """Return Spearman's correlation with Fig. 8, its p-value, and over how many common routes.

    Only the order is compared: metric, network and data differ. NaN below three routes.
    """
    common = [k for k in np.flatnonzero(places.measured) if places.routes[k] in published.FIG8]
    theirs = np.array([published.FIG8[places.routes[k]] for k in common])
    return *rank_correlation(places.value[common], theirs), len(common)


def agreement_text(places: Placements) -> str:
    """Return whether the routes have the published order."""
    correlation, p, routes = agreement(places)
    if not np.isfinite(correlation):
        return "Too few of the published routes have a number here to compare their order."
    order = trend(correlation, "the published order holds here too", "the opposite of it")
    return (
        f"Rank correlation with the published differences over {routes} common routes:"
        f" {number(correlation)} (p = {p:.2g}); {order}."
    )


def draw_route_bars(bars: RouteBars, ax: style.Axes) -> None:
    """Draw better bars blue, worse ones orange; hatch routes without a number.

    The gap between the bars separates the two families.
    """
    places = bars.places
    power, value, spread = style.scaled(places.value, places.low, places.high)
    x = np.arange(len(value)) + (np.arange(len(value)) >= bars.split)
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    colours = [style.difference_colour(places.metric, v) for v in places.value]
    drawn = ax.bar(x, value, width=0.78, color=colours)
    if places.best is not None:
        drawn[places.best].set(edgecolor=style.BLACK, linewidth=1.2)
    known = np.isfinite(places.low)
    ax.errorbar(
        x[known], value[known], spread[:, known], fmt="none", ecolor=style.BLACK, elinewidth=0.7
    )
    _label_families(ax, bars, x)
    for at, state in zip(x[~places.measured], places.states[~places.measured]):
        _draw_state(ax, float(at), str(state))
    ax.set_ylabel(style.label(places.metric) + style.times(power))


def _label_families(ax: style.Axes, bars: RouteBars, x: Ints) -> None:
    """Write below each bar the end that varies, below each family what it is."""
    places, split = bars.places, bars.split
    ax.set_xticks(x, [str(block) for block in (*places.end[:split], *places.start[split:])])
    ax.tick_params(axis="x", length=0, pad=1.5)
    ax.spines["bottom"].set_visible(False)
    ax.set_xlim(x[0] - 0.7, x[-1] + 0.7)
    first, second = f"route {bars.start}$\\to j$: end $j$", f"$i\\to${bars.end}: start $i$"
    below = ax.get_xaxis_transform()
    for at, text in ((x[:split], first), (x[split:], second)):
        if len(at):
            ax.text(at.mean(), -0.13, text, transform=below, ha="center", va="top", fontsize=7)
    looks = {style.STATE_LOOKS[state] for state in places.states if state in style.STATE_LOOKS}
    marks = ["framed: best"] if places.best is not None else []
    key = ",  ".join([*marks, *sorted(f"{look.letter} {look.text}" for look in looks)])
    if key:
        ax.text(0.5, -0.29, key, transform=ax.transAxes, ha="center", va="top", fontsize=6.5)


def _draw_state(ax: style.Axes, x: float, state: str) -> None:
    """Draw a stub of fixed height on the baseline, hatched and lettered."""
    look = style.STATE_LOOKS[state]
    low, high = ax.get_ylim()
    height = 0.12 * (high - low)
    ax.bar(x, height, width=0.78, fc="white", ec=style.GREY, lw=0.5, hatch=look.hatch)
    ax.text(x, height * 1.1, look.letter, ha="center", va="bottom", fontsize=6.5)
    ax.set_ylim(low, max(high, height * 1.9))


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric, places in records.placed():
        width = style.COLUMN if len(places.routes) <= 18 else style.PAGE
        parts = list(records.compared_parts(metric))
        fig, (*ours, theirs) = style.figure(
            width=width, height=1.95 * (len(parts) + 1), rows=len(parts) + 1
        )
        captions = []
        for part, ax in zip(parts, ours):
            bars = route_bars(part.frame, metric)
            draw_route_bars(bars, ax)
            ax.set_title(part.title(bars.places.measured_as))
            question = part.frame.attrs.get("comparison", "")
            said = f"{best_route(bars.places)} {agreement_text(bars.places)}"
            captions.append(f"{question[0].upper()}{question[1:]}: {said}" if question else said)
        draw_route_bars(published_bars(), theirs)
        theirs.set_title(published.FIG8_TITLE)
        yield Drawn(named("route_bars", metric), " ".join(captions), fig, metric)


ROUTE_BARS = FigureKind("Placement from short to long routes", _drawn, each_panel=True)
