"""Route placement as bars of the difference to the baseline, Fig. 8's routes from short to long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.placements import commonest, measured_as, placements
from tread_lab.analysis.figures.style import (
    BLACK,
    GREY,
    STATE_LOOKS,
    Axes,
    difference_colour,
    label,
    power_of_ten,
    times,
)
from tread_lab.analysis.tables import published
from tread_lab.frames import delta_column
from tread_lab.records.metric_names import metric_kind
from tread_lab.specs.errors import UserError


@dataclass(frozen=True)
class Bar:
    """One route's difference to the baseline; NaN with a state where there is no number."""

    route: tuple[int, int]
    value: float
    low: float = float("nan")
    high: float = float("nan")
    state: str = "completed"


@dataclass(frozen=True)
class RouteBars:
    """Two families of routes, each from its shortest to its longest.

    Attributes:
        metric: what the values are; a difference, so the baseline is 0.
        start, end: i of the family i->j, and j of the family i->j.
        from_start: routes that share their start.
        to_end: routes that share their end; one that belongs to both families stands in the first.
        measured_as: what the intervals are taken over.
    """

    metric: str
    start: int
    end: int
    from_start: tuple[Bar, ...]
    to_end: tuple[Bar, ...]
    measured_as: str = ""

    @property
    def bars(self) -> tuple[Bar, ...]:
        """All bars from left to right."""
        return (*self.from_start, *self.to_end)

    @property
    def best(self) -> Bar | None:
        """The bar with the best value; `None` also where no value of the metric is better."""
        sign = metric_kind(self.metric).sign
        measured = [bar for bar in self.bars if np.isfinite(bar.value) and sign]
        return min(measured, key=lambda bar: sign * bar.value, default=None)


def route_bars(
    frame: pd.DataFrame,
    metric: str = "gap/heldout",
    *,
    start: int | None = None,
    end: int | None = None,
) -> RouteBars:
    """The bars of one metric from the rows of `trials_frame`.

    Args:
        start, end: what the two families share; else the start and the end with most routes.

    Raises:
        UserError: no route was planned, no such metric, or several cells share a route.
    """
    places = placements(frame, metric)
    if places.empty:
        raise UserError("this sweep places no single route: nothing to compare with the baseline")
    start = commonest(places["start"]) if start is None else start
    end = commonest(places["end"]) if end is None else end
    first = places[places["start"] == start].sort_values("length")
    second = places[(places["end"] == end) & (places["start"] != start)].sort_values("length")
    shown = delta_column(metric)
    return RouteBars(shown, start, end, _bars(first), _bars(second), measured_as(places))


def published_bars() -> RouteBars:
    """The published values (see `published.FIG8`), FID on another model and data set than ours."""
    bars = [Bar(route, value) for route, value in published.FIG8.items()]
    first = [bar for bar in bars if bar.route[0] == 0]
    second = [bar for bar in bars if bar.route[0] != 0]
    return RouteBars("delta/FID", 0, 8, tuple(first), tuple(second))


def agreement(bars: RouteBars) -> tuple[float, int]:
    """Spearman's correlation with the published differences, and over how many common routes.

    Only the order is compared: metric, network and data differ. NaN below three routes.
    """
    common = [bar for bar in bars.bars if bar.route in published.FIG8 and np.isfinite(bar.value)]
    if len(common) < 3:
        return float("nan"), len(common)
    ours = pd.Series([bar.value for bar in common]).rank()
    theirs = pd.Series([published.FIG8[bar.route] for bar in common]).rank()
    sign = metric_kind(bars.metric).sign
    return sign * float(ours.corr(theirs)) if sign else float("nan"), len(common)


def draw_route_bars(bars: RouteBars, ax: Axes) -> None:
    """Both families side by side; better than the baseline is blue, worse is orange.

    The best is framed; a metric of which no value is better is grey.
    """
    values = np.array([bar.value for bar in bars.bars])
    ends = np.array([[bar.low, bar.high] for bar in bars.bars])
    power = power_of_ten(np.concatenate([values, ends.ravel()]))
    split = len(bars.from_start)
    x = np.arange(len(values)) + (np.arange(len(values)) >= split)
    ax.axhline(0, color=BLACK, linewidth=0.7)
    colours = [difference_colour(bars.metric, value) for value in values]
    drawn = ax.bar(x, values / 10.0**power, width=0.78, color=colours)
    for at, bar, patch in zip(x, bars.bars, drawn):
        if bar is bars.best:
            patch.set(edgecolor=BLACK, linewidth=1.2)
        if np.isfinite(bar.low):
            spread = np.array([[bar.value - bar.low], [bar.high - bar.value]]) / 10.0**power
            ax.errorbar(at, bar.value / 10.0**power, spread, color=BLACK, linewidth=0.7)
    _label_families(ax, bars, x, split)
    for at, bar in zip(x, bars.bars):
        if not np.isfinite(bar.value):
            _draw_state(ax, float(at), bar.state)
    ax.set_ylabel(label(bars.metric) + times(power))


def _bars(places: pd.DataFrame) -> tuple[Bar, ...]:
    return tuple(
        Bar((p["start"], p["end"]), p["value"], p["low"], p["high"], p["state"])
        for p in places.to_dict("records")
    )


def _label_families(ax: Axes, bars: RouteBars, x: np.ndarray, split: int) -> None:
    """Below each bar the end that varies, below each family what it is."""
    ticks = [str(bar.route[1]) for bar in bars.from_start] + [str(b.route[0]) for b in bars.to_end]
    ax.set_xticks(x, ticks)
    ax.tick_params(axis="x", length=0, pad=1.5)
    ax.spines["bottom"].set_visible(False)
    ax.set_xlim(x[0] - 0.7, x[-1] + 0.7)
    families = [(x[:split], f"route {bars.start}$\\to j$: end $j$")]
    families += [(x[split:], f"$i\\to${bars.end}: start $i$")]
    for places, text in families:
        if len(places):
            middle = (places[0] + places[-1]) / 2
            below = ax.get_xaxis_transform()
            ax.text(middle, -0.13, text, transform=below, ha="center", va="top", fontsize=7)
    looks = {STATE_LOOKS[bar.state] for bar in bars.bars if bar.state in STATE_LOOKS}
    marks = ["framed: best"] if bars.best is not None else []
    key = ",  ".join([*marks, *sorted(f"{look.letter} {look.text}" for look in looks)])
    if key:
        ax.text(0.5, -0.29, key, transform=ax.transAxes, ha="center", va="top", fontsize=6.5)


def _draw_state(ax: Axes, x: float, state: str) -> None:
    """A stub of fixed height on the baseline, hatched and lettered."""
    look = STATE_LOOKS[state]
    low, high = ax.get_ylim()
    height = 0.12 * (high - low)
    ax.bar(x, height, width=0.78, fc="white", ec=GREY, lw=0.5, hatch=look.hatch)
    ax.text(x, height * 1.1, look.letter, ha="center", va="bottom", fontsize=6.5)
    ax.set_ylim(low, max(high, height * 1.9))
