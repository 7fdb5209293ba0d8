"""Points of a figure: settings with a value, its interval and its state, a row for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.frames import HIGH, LOW, NO_RESULT, is_metric, measured_as
from tread_lab.records.metric_names import metric_kind
from tread_lab.records.status import RunState

Array = NDArray[np.float64]
NUMBERS = ["value", "low", "high"]


@dataclass(frozen=True)
class Points:
    """What a figure is drawn from.

    Attributes:
        metric: what the values are; of a difference, the baseline has 0.
        rows: a setting in each: `name`, `value` with `low` and `high` (NaN where there is none),
            `state` (`completed`, or why there is no number), and where it stands on the axes.
        measured_as: what the intervals are over; empty where there are none.
    """

    metric: str
    rows: pd.DataFrame
    measured_as: str = ""

    @property
    def measured(self) -> pd.DataFrame:
        """The rows that have a number."""
        return self.rows[self.rows["value"].notna()]

    @property
    def best(self) -> Any:
        """The index of the best value; `None` also where no value of the metric is better."""
        sign = metric_kind(self.metric).sign
        values = sign * self.measured["value"]
        return values.idxmin() if sign and len(values) else None


def cell_points(cells: pd.DataFrame, metric: str) -> Points:
    """Return the rows of `cells_frame` as points, which keep the settings and costs of their cells.

    A cell has a number only if all its seeds completed. A completed one without is `uncompared`
    where its baseline ended without a result, else `unmeasured`.
    """
    completed = cells["state"] == RunState.COMPLETED
    done = completed & cells[metric].notna()
    alone = completed & cells["reason"].isin(NO_RESULT.values())
    state = cells["state"].mask(completed, "unmeasured").mask(alone, "uncompared")
    ends = zip(NUMBERS, (metric, metric + LOW, metric + HIGH))
    numbers = {name: cells[column].where(done).astype(float) for name, column in ends}
    kept = [c for c in cells if not is_metric(c) or str(c).startswith("cost/")]
    kept = [c for c in kept if c != "name"]  # an axis may be called so
    rows = cells[kept].rename(columns={"cell": "name"}).assign(**numbers)
    rows["state"] = state.mask(done, "completed")
    return Points(metric, rows, measured_as(cells[done], metric))


def bare_rows(**columns: Any) -> pd.DataFrame:
    """Return rows of points without intervals, such as published ones; all have a number."""
    return pd.DataFrame({"low": np.nan, "high": np.nan, "state": "completed", **columns})
