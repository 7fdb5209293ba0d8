"""Route placement as bars of the difference to the baseline, Fig. 8's routes from short to long."""

# K bars

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named
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


def route_bars(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Placements:
    """Return the bars of one metric from the rows of `trials_frame`, see `in_families`.

    Raises:
        UserError: no route was planned, no such metric, or several cells share a route.
    """
    places = placements(frame, metric)
    if not places.routes:
        raise UserError("this sweep places no single route: nothing to compare with the baseline")
    return in_families(places)


def in_families(places: Placements) -> Placements:
    """Return two families of routes, each from its shortest to its longest.

    The first shares the start that most routes have, the other the end that most have.
    """
    order = np.argsort(places.length, kind="stable")
    shares_start = places.start[order] == commonest(places.start)
    shares_end = (places.end[order] == commonest(places.end)) & ~shares_start
    return places.take(np.concatenate([order[shares_start], order[shares_end]]))


def agreement_text(places: Placements) -> str:
    """Return whether the routes have the published order.

    Only the order is compared: metric, network and data differ.
    """
    common = [k for k in np.flatnonzero(places.measured) if places.routes[k] in published.FIG8]
    theirs = np.array([published.FIG8[places.routes[k]] for k in common])
    correlation, p = rank_correlation(places.value[common], theirs)
    if not np.isfinite(correlation):
        return "Too few of the published routes have a number here to compare their order."
    order = trend(correlation, "the published order holds here too", "the opposite of it")
    return (
        f"Rank correlation with the published differences over {len(common)} common routes:"
        f" {number(correlation)} (p = {p:.2g}); {order}."
    )


def draw_route_bars(places: Placements, ax: style.Axes) -> None:
    """Draw better bars blue, worse ones orange; hatch routes without a number.

    The gap between the bars separates the two families.
    """
    x = np.arange(len(places.value))
    x = x + (x >= _split(places))
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    colours = [style.difference_colour(places.metric, v) for v in places.value]
    drawn = ax.bar(x, places.value, width=0.78, color=colours)
    if places.best is not None:
        drawn[places.best].set(edgecolor=style.BLACK, linewidth=1.2)
    known = np.isfinite(places.low)
    spread = style.bars(places.value, places.low, places.high)[:, known]
    look: dict[str, Any] = {"fmt": "none", "ecolor": style.BLACK, "elinewidth": 0.7}
    ax.errorbar(x[known], places.value[known], spread, **look)
    _label_families(ax, places, x)
    for at, state in zip(x[~places.measured], places.states[~places.measured]):
        _draw_state(ax, float(at), str(state))
    style.value_axis(ax.yaxis, places.metric, places.value, places.low, places.high)


def _split(places: Placements) -> int:
    """Return how many bars the first family has."""
    return int((places.start == commonest(places.start)).sum())


def _label_families(ax: style.Axes, places: Placements, x: Ints) -> None:
    """Write below each bar the end that varies, below each family what it is."""
    split, start, end = _split(places), commonest(places.start), commonest(places.end)
    ax.set_xticks(x, [str(block) for block in (*places.end[:split], *places.start[split:])])
    ax.tick_params(axis="x", length=0, pad=1.5)
    ax.spines["bottom"].set_visible(False)
    ax.set_xlim(x[0] - 0.7, x[-1] + 0.7)
    first, second = f"route {start}$\\to j$: end $j$", f"$i\\to${end}: start $i$"
    below = ax.get_xaxis_transform()
    for at, text in ((x[:split], first), (x[split:], second)):
        if len(at):
            ax.text(at.mean(), -0.13, text, transform=below, ha="center", va="top", fontsize=7)
    looks = {style.STATE_LOOKS[state] for state in places.states if state in style.STATE_LOOKS}
    marks = [f"framed: {places.best_is}"] if places.best is not None else []
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


@figure_kind(each_panel=True)
def bars(records: SweepRecords) -> Iterator[Drawn]:
    """Placement from short to long routes"""
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
            ax.set_title(part.title(bars.measured_as))
            question = part.frame.attrs.get("comparison", "")
            said = f"{best_route(bars)} {agreement_text(bars)}"
            captions.append(f"{question[0].upper()}{question[1:]}: {said}" if question else said)
        draw_route_bars(in_families(published_placements()), theirs)
        theirs.set_title(published.FIG8_TITLE)
        yield Drawn(named("route_bars", metric), " ".join(captions), fig, metric)
