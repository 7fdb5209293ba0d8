"""The selection rate: a metric's difference to dense against the routed share of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.curves import Curve, Curves, bare_curve, curves, draw_curves
from tread_lab.analysis.figures.kind import Drawn, FigureKind, SweepRecords, named
from tread_lab.analysis.figures.sentences import metric_text, routed, span
from tread_lab.analysis.figures.style import BLACK, PAGE, Axes, figure
from tread_lab.analysis.tables import published
from tread_lab.frames import delta_column, require_metric, with_delta
from tread_lab.records.metric_names import GAP_HELDOUT, metric_kind

RATE = "rate"


def rates(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Curves:
    """Return one curve for every route (and other axis) with at least two rates.

    Rates are 0 <= s < 1; at s = 0 stands the baseline itself, whose difference is 0.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    found = curves(trials[trials["role"] == "trial"], delta_column(metric), RATE)
    several = tuple(_from_zero(curve) for curve in found.curves if len(set(curve.x)) > 1)
    return replace(found, curves=several)


def _from_zero(curve: Curve) -> Curve:
    """Put the baseline in front: no difference to itself, no interval."""
    first = {"x": 0.0, "cost": np.nan, "value": 0.0, "low": np.nan, "high": np.nan}
    led: dict[str, Any] = {k: np.insert(getattr(curve, k), 0, v) for k, v in first.items()}
    return replace(curve, **led, states=("completed", *curve.states))


def published_rates() -> Curves:
    """Return Table 5: FID-50K of DiT-B/2 less that of the dense run; another metric and model."""
    table = published.table5()
    rate, fid = (table[c].to_numpy(float) for c in ("selection_rate", "fid"))
    return Curves("delta/FID", (bare_curve("2->8", False, rate, fid - fid[0]),), "")


def best_rate(found: Curves) -> tuple[Curve, int] | None:
    """Return the curve and the index of the best value, the baseline's own zero included.

    `None` where no value of the metric is better.
    """
    sign = metric_kind(found.metric).sign
    measured = [
        (sign * curve.value[k], n, k)
        for n, curve in enumerate(found.curves)
        for k in np.flatnonzero(np.isfinite(curve.value))
    ]
    if not measured or not sign:
        return None
    _, n, k = min(measured)
    return found.curves[n], int(k)


def draw_rates(found: Curves, ax: Axes) -> None:
    """Draw one line per route; cells without a number are lettered on the axis."""
    ax.axhline(0, color=BLACK, linewidth=0.7)
    missing = any(state != "completed" for curve in found.curves for state in curve.states)
    draw_curves(found, ax, legend=missing or len(found.curves) > 1)
    ax.set_xlabel("selection rate $s$, share of tokens routed")
    ax.set_xlim(-0.05, 1.0)


def caption(found: Curves) -> str:
    """Return the best rate and its route."""
    best = best_rate(found)
    if best is None:
        return "No two rates of one route have a number yet."
    curve, k = best
    if curve.x[k] == 0:
        return f"No rate has a better mean than dense training ({metric_text(found.metric)})."
    interval = span(curve.value[k], curve.low[k], curve.high[k], found.measured_as)
    name = routed(curve.name)
    return f"Best is s = {curve.x[k]:g} on {name}: {metric_text(found.metric)} {interval}."


def _drawn(records: SweepRecords) -> Iterator[Drawn]:
    for metric in records.compared:
        found = rates(records.frame, metric)
        if found.curves:
            fig, (ours, theirs) = figure(width=PAGE, height=2.3, columns=2)
            draw_rates(found, ours)
            ours.set_title(records.title(found.measured_as))
            draw_rates(published_rates(), theirs)
            theirs.set_title(published.TABLE5_TITLE)
            yield Drawn(named("selection_rate", metric), caption(found), fig, metric)


SELECTION_RATE = FigureKind("How many tokens are routed", _drawn, compares=True)
