"""The columns of frames: their names and order, and values as a column holds them."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tread_lab.config.errors import UserError, suggest
from tread_lab.config.labels import value_text
from tread_lab.records.run_state import RunState

LOW, HIGH, COUNT, UNIT, KEPT = ":low", ":high", ":n", ":unit", ":kept"
PLACE_AXES = ("start", "end", "route", "routes")
OWN = (LOW, HIGH, COUNT, KEPT)  # what a trial's gap has beside its mean


def metric_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that were measured, intervals included: evaluations, then gaps, then costs."""
    groups = ("gap/", "cost/", "throughput/")
    columns = [str(column) for column in frame.columns if is_metric(column)]
    order = {c: next((k for k, g in enumerate(groups, 1) if c.startswith(g)), 0) for c in columns}
    return sorted(columns, key=lambda column: order[column])


def own_metrics(frame: pd.DataFrame) -> list[str]:
    """`metric_columns` without what another sweep has measured of some runs that both share."""
    foreign, done = frame.attrs.get("foreign", ()), frame["state"] == RunState.COMPLETED
    return [
        c for c in metric_columns(frame) if c not in foreign or frame.loc[done, c].notna().all()
    ]


def require_metric(frame: pd.DataFrame, metric: str) -> None:
    """Raise UserError where the frame has no such metric; the nearest one is suggested.

    A column of an interval, `gap/heldout:low`, or of a setting, `seed`, is no metric.
    """
    metrics = [c for c in metric_columns(frame) if ":" not in c]
    if metric not in metrics:
        raise UserError(f"no metric {metric!r} in this sweep{suggest(metric, metrics)}")


def is_metric(column: object) -> bool:
    """Whether a column was measured, its intervals included."""
    return any(mark in str(column) for mark in ("/", "@"))


def plain(value: Any) -> Any:
    """A value as a column holds it: scalars as they are, lists and mappings as compact JSON."""
    return value_text(value) if isinstance(value, dict | list | tuple) else value


def other_axes(frame: pd.DataFrame) -> list[str]:
    """Return the axes of the sweep that are not the route's."""
    return [axis for axis in frame.attrs.get("axes", ()) if axis not in PLACE_AXES]
