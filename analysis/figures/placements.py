"""Every placed route of a sweep with its difference to the dense baseline, one row a cell."""

from __future__ import annotations

import pandas as pd

from tread_lab.frames import (
    HIGH,
    LOW,
    NO_RESULT,
    UNIT,
    cells_frame,
    delta_column,
    require_metric,
    with_delta,
)
from tread_lab.specs.errors import UserError

ROUTE_AXES = ("start", "end", "route", "routes")


def placements(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Cells with exactly one route: start, end, length, value, low, high, n, unit, state.

    `frame` has the rows of `trials_frame`. The value is the difference to the baseline of the same
    seed, averaged over seeds, and is there **only if every seed of the cell completed**. A finished
    cell without the metric has the state `unmeasured`.

    Raises:
        UserError: no such metric, or two cells share a route; `panels` splits a frame first.
    """
    require_metric(frame, metric)
    column = delta_column(metric)
    trials = with_delta(frame, metric)
    trials = trials[(trials["role"] == "trial") & trials["route_start"].notna()]
    trials = trials[~trials["route"].str.contains("+", regex=False)]
    cells = cells_frame(trials.drop_duplicates(["run", "baseline"]))
    shared = cells[cells.duplicated("route")]
    if len(shared):
        where = " and ".join(cells.loc[cells["route"] == shared["route"].iloc[0], "cell"][:2])
        raise UserError(f"one route stands in several cells ({where}); choose one of them first")
    done = (cells["state"] == "completed") & cells[column].notna()
    state = cells["state"].where(done, states_without_numbers(cells))
    return pd.DataFrame(
        {
            "start": cells["route_start"].astype(int),
            "end": cells["route_end"].astype(int),
            "length": cells["route_length"].astype(int),
            "value": cells[column].where(done),
            "low": cells[column + LOW].where(done),
            "high": cells[column + HIGH].where(done),
            "n": cells["completed"],
            "unit": cells[column + UNIT],
            "state": state,
        }
    )


def states_without_numbers(cells: pd.DataFrame) -> pd.Series[str]:
    """Why a row of `cells_frame` has no number, if it has none: its state, if it completed not.

    A completed one is `uncompared` where its baseline ended without a result, else `unmeasured`.
    """
    alone = cells["reason"].isin(NO_RESULT.values())
    finished = pd.Series("unmeasured", index=cells.index).mask(alone, "uncompared")
    return cells["state"].where(cells["state"] != "completed", finished)


def panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """`frame` split by every axis but the route's: (`rate=0.5`, rows with their baselines).

    A sweep over routes alone is one panel without a name.
    """
    trials = frame[frame["role"] == "trial"]
    axes = [
        axis
        for axis in frame.attrs.get("axes", ())
        if axis not in ROUTE_AXES and trials[axis].nunique(dropna=False) > 1
    ]
    if not axes:
        return [("", frame)]
    found = []
    for values, part in trials.groupby(axes, sort=False, dropna=False):
        name = " ".join(f"{axis}={value}" for axis, value in zip(axes, values))
        rows = frame["run"].isin(part["baseline"]) & (frame["role"] == "baseline")
        found.append((name, frame[rows | frame.index.isin(part.index)]))
    return found


def commonest(values: pd.Series[int]) -> int:
    """The value met most often, the smallest of equals."""
    counts = values.value_counts()
    return int(counts.index[counts == counts.max()].min())


def measured_as(places: pd.DataFrame) -> str:
    """What the intervals are taken over, for a caption: `95% over 3 seeds`, or nothing."""
    units = set(places.loc[places["value"].notna(), "unit"])
    if units == {"seeds"}:
        return f"95% over {places['n'].max()} seeds"
    return "95% over images, 1 seed" if units == {"images"} else ""
