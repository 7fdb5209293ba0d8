"""The selection rate: a metric's difference to dense against the routed share of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.curves import Curve, Curves, curves
from tread_lab.analysis.figures.style import (
    BLACK,
    CYCLE,
    Axes,
    arrow,
    label,
    mark_state,
    power_of_ten,
    state_legend,
    times,
)
from tread_lab.analysis.tables import published
from tread_lab.frames import delta_column, with_delta
from tread_lab.records.metric_names import metric_kind

Array = NDArray[np.float64]
RATE = "selection_rate"


@dataclass(frozen=True)
class RateCurve:
    """Differences to the baseline over rates 0 <= s < 1; at s = 0 stands the baseline itself.

    Attributes:
        name: the route and what else is fixed.
        rate, value, low, high: NaN where there is no number.
        states: `completed`, or why there is no number.
    """

    name: str
    rate: Array
    value: Array
    low: Array
    high: Array
    states: tuple[str, ...]


@dataclass(frozen=True)
class Rates:
    """The curves of one metric; `measured_as` tells what the intervals are over."""

    metric: str
    curves: tuple[RateCurve, ...]
    measured_as: str = ""

    @property
    def best(self) -> tuple[str, float] | None:
        """The curve and the rate of the best value, the baseline's own zero included.

        `None` where no value of the metric is better.
        """
        sign = metric_kind(self.metric).sign
        found = [
            (sign * v, curve.name, r)
            for curve in self.curves
            for r, v in zip(curve.rate, curve.value)
            if np.isfinite(v) and sign
        ]
        return min(found)[1:] if found else None


def rates(frame: pd.DataFrame, metric: str = "gap/heldout") -> Rates:
    """One curve for every route (and other axis) with at least two rates.

    Raises:
        UserError: no such metric.
    """
    if metric not in frame:
        curves(frame, metric, RATE)  # says so
    shown = delta_column(metric)
    trials = with_delta(frame, metric)
    found = curves(trials[trials["role"] == "trial"], shown, RATE)
    drawn = tuple(_from_zero(curve) for curve in found.curves if len(set(curve.x)) > 1)
    return Rates(shown, drawn, found.measured_as or _over_images(frame, metric, found))


def published_rates() -> Rates:
    """Table 5: FID-50K of DiT-B/2 less that of the dense run; another metric, data and model."""
    table = published.table5()
    rate, fid = (table[c].to_numpy(float) for c in ("selection_rate", "fid"))
    nothing = np.full(len(rate), np.nan)
    states = ("completed",) * len(rate)
    return Rates("delta/FID", (RateCurve("2->8", rate, fid - fid[0], nothing, nothing, states),))


def draw_rates(rates: Rates, ax: Axes) -> None:
    """One line a route; cells without a number are lettered on the axis."""
    values = [v for curve in rates.curves for v in (curve.value, curve.low, curve.high)]
    power = power_of_ten(np.concatenate([np.zeros(1), *values]))
    ax.axhline(0, color=BLACK, linewidth=0.7)
    states: list[str] = []
    for k, curve in enumerate(rates.curves):
        value, low, high = (v / 10.0**power for v in (curve.value, curve.low, curve.high))
        spread = np.nan_to_num(np.stack([value - low, high - value]))
        known = np.isfinite(value)
        ax.errorbar(
            curve.rate[known],
            value[known],
            spread[:, known],
            fmt="-" + "os^vDP"[k % 6],
            color=CYCLE[k % len(CYCLE)],
            label=arrow(curve.name),
        )
        for rate, state in zip(curve.rate[~known], np.array(curve.states)[~known]):
            mark_state(ax, float(rate), str(state))
            states.append(str(state))
    ax.set_xlabel("selection rate $s$, share of tokens routed")
    ax.set_ylabel(label(rates.metric) + times(power))
    ax.set_xlim(-0.05, 1.0)
    handles, _ = ax.get_legend_handles_labels()
    if len(rates.curves) > 1 or states:
        ax.legend(handles=[*handles, *state_legend(states)], loc="best")


def _from_zero(curve: Curve) -> RateCurve:
    """With the baseline in front: no difference to itself, no interval."""

    def led(values: Array, first: float) -> Array:
        return np.concatenate([[first], values])

    return RateCurve(
        curve.name,
        led(curve.x, 0.0),
        led(curve.value, 0.0),
        led(curve.low, np.nan),
        led(curve.high, np.nan),
        ("completed", *curve.states),
    )


def _over_images(frame: pd.DataFrame, metric: str, found: Curves) -> str:
    has = any(np.isfinite(curve.low).any() for curve in found.curves)
    return "95% over images, 1 seed" if has and f"{metric}:low" in frame else ""
