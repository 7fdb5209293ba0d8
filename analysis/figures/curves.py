"""A metric along an axis of a sweep, one curve per setting of the others; the selection rate."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tread_lab.analysis.figures import style
from tread_lab.analysis.figures.kind import Drawn, SweepRecords, figure_kind, named
from tread_lab.analysis.figures.points import NUMBERS, Points, bare_rows, cell_points
from tread_lab.analysis.tables import published
from tread_lab.frames import (
    STEP,
    cells_frame,
    delta_column,
    interval_text,
    require_metric,
    routed,
    with_delta,
)
from tread_lab.records.metric_names import GAP_HELDOUT, metric_label
from tread_lab.specs.errors import UserError, suggest
from tread_lab.specs.labels import without_axis
from tread_lab.specs.lengths import SPEND, STEPS

RATE = "rate"


@dataclass(frozen=True)
class Curves(Points):
    """Points on curves, baselines first, from left to right.

    Their rows also have `curve`, its name (`dense`, or the route with its rate, and what else is
    fixed), `dense`, whether it is of baselines, and `x`, the value of the axis.

    Attributes:
        warning: why stages of runs stand in for no shorter runs; empty where they do.
    """

    warning: str = ""

    @property
    def curves(self) -> dict[str, pd.DataFrame]:
        """The rows of each curve by its name."""
        return {str(name): rows for name, rows in self.rows.groupby("curve", sort=False)}


def curves(frame: pd.DataFrame, metric: str, axis: str) -> Curves:
    """Return `metric` along the numeric column `axis`, from the rows of `trials_frame`.

    Cells are joined that differ in `axis` alone; over steps of training also in what they spend,
    which gives them their steps. A cell has a number only if all its seeds completed.

    Raises:
        UserError: no such metric, or no numeric axis of that name.
    """
    require_metric(frame, metric)
    if axis not in frame or not pd.api.types.is_numeric_dtype(frame[axis]):
        axes = frame.attrs.get("axes", ())
        raise UserError(f"no numeric axis {axis!r} in this sweep{suggest(axis, axes)}")
    cells = cells_frame(frame)
    own = (axis, SPEND) if axis == STEPS else (axis,)
    names = cells["cell"].map(lambda cell: functools.reduce(without_axis, own, cell))
    placed = cells[axis].notna()
    ended = dict(zip(names[~placed], cells.loc[~placed, "state"]))  # a seed that has no stages
    cells["state"] = [ended.get(name, state) for name, state in zip(names, cells["state"])]
    found = cell_points(cells.assign(curve=names, x=cells[axis].astype(float))[placed], metric)
    dense = (found.rows["role"] == "baseline").groupby(found.rows["curve"]).transform("all")
    rows = found.rows.assign(dense=dense)
    order = np.lexsort((rows["x"], pd.factorize(rows["curve"])[0], ~dense))
    warning = _schedule_warning(frame) if axis == STEP else ""
    return Curves(metric, rows.iloc[order], found.measured_as, warning)


def _schedule_warning(frame: pd.DataFrame) -> str:
    """Return why the stages of runs are no shorter runs; nothing for a constant rate."""
    schedules = ", ".join(frame.attrs.get("schedules", ()))
    falls = f" The rate falls to the end ({schedules}): an earlier step is no shorter run."
    return falls if schedules else ""


def curve_looks(found: Curves) -> Iterator[tuple[str, pd.DataFrame, str, str]]:
    """Yield the name, rows, format and colour of each curve."""
    dense = sum(bool(rows["dense"].all()) for rows in found.curves.values())
    for k, (name, rows) in enumerate(found.curves.items()):
        yield name, rows, *style.curve_look(k - dense, dense=k < dense)


def draw_curves(found: Curves, ax: style.Axes, *, legend: bool = True) -> None:
    """Draw dense curves black and dashed, others in colour; cells without a number are lettered."""
    for name, rows, shape, colour in curve_looks(found):
        known = rows[rows["value"].notna()]
        look: dict[str, Any] = {"fmt": shape, "color": colour, "label": style.arrow(name)}
        ax.errorbar(known["x"], known["value"], style.bars(known), **look)
    missing = found.rows[found.rows["value"].isna()]
    for x, state in zip(missing["x"], missing["state"]):
        style.mark_state(ax, x, state)
    style.value_axis(ax.yaxis, found.metric, found.rows[NUMBERS])
    handles, _ = ax.get_legend_handles_labels()
    if legend:
        handles = [*handles, *style.state_legend(missing["state"])]
        ax.legend(handles=handles, **style.place_legend(handles))


def rates(frame: pd.DataFrame, metric: str = GAP_HELDOUT) -> Curves:
    """Return one curve for every route (and other axis) with at least two rates.

    Rates are 0 <= s < 1; at s = 0 stands the baseline itself, whose difference is 0.

    Raises:
        UserError: no such metric.
    """
    require_metric(frame, metric)
    trials = with_delta(frame, metric)
    found = curves(trials[trials["role"] == "trial"], delta_column(metric), RATE)
    several = found.rows[found.rows.groupby("curve")["x"].transform("nunique") > 1]
    dense = several.drop_duplicates("curve").assign(x=0.0, value=0.0, state="completed")
    dense[["low", "high"]] = np.nan
    return replace(found, rows=pd.concat([dense, several], ignore_index=True))


def published_rates() -> Curves:
    """Return Table 5: FID-50K of DiT-B/2 less that of the dense run; another metric and model."""
    table = published.table("Table 5")
    rate, fid = (table[c].to_numpy(float) for c in ("selection_rate", "fid"))
    rows = bare_rows(curve="2->8", dense=False, x=rate, value=fid - fid[0])
    return Curves("delta/FID", rows)


def best_rate(found: Curves) -> pd.Series[Any] | None:
    """Return the best point, the baseline's own zero included.

    `None` where no rate has a number, or no value of the metric is better.
    """
    measured = (found.measured["x"] > 0).any() and found.best is not None
    return found.rows.loc[found.best] if measured else None


def draw_rates(found: Curves, ax: style.Axes) -> None:
    """Draw one line per route; cells without a number are lettered on the axis."""
    ax.axhline(0, color=style.BLACK, linewidth=0.7)
    missing = len(found.measured) < len(found.rows)
    draw_curves(found, ax, legend=missing or len(found.curves) > 1)
    ax.set_xlabel("selection rate $s$, share of tokens routed")
    ax.set_xlim(-0.05, 1.0)


def rates_caption(found: Curves) -> str:
    """Return the best rate and its route."""
    best = best_rate(found)
    if best is None:
        return "No rate has a number yet."
    if best["x"] == 0:
        return f"No rate has a better mean than dense training ({metric_label(found.metric)})."
    interval = interval_text(found.metric, *best[NUMBERS], over=found.measured_as)
    name = routed(best["curve"])
    return f"Best is s = {best['x']:g} on {name}: {metric_label(found.metric)} {interval}."


@figure_kind(compares=True)
def selection_rates(records: SweepRecords) -> Iterator[Drawn]:
    """How many tokens are routed"""
    for metric in records.compared:
        found = rates(records.frame, metric)
        if best_rate(found) is not None:
            height = style.legend_height(len(found.curves))
            fig, (ours, theirs) = style.figure(width=style.PAGE, height=height, columns=2)
            draw_rates(found, ours)
            ours.set_title(records.title(found.measured_as))
            draw_rates(published_rates(), theirs)
            theirs.set_title(published.TABLE5_TITLE)
            yield Drawn(named("selection_rate", metric), rates_caption(found), fig, metric)
