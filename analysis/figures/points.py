"""What figures are drawn from: the records of a sweep, and points, a row for each setting."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tread_lab.analysis.figures.style import Figure
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import DELTA, GAP_HELDOUT, metric_kind
from tread_lab.records.run_folder import RunFolder
from tread_lab.records.run_state import RunState
from tread_lab.results import (
    HIGH,
    LOW,
    NO_RESULT,
    is_metric,
    measured_as,
    own_metrics,
    ranking_key,
    with_delta,
)

Array = NDArray[np.float64]
NUMBERS = ["value", "low", "high"]
LONGEST = 80  # characters of a metric or panel in a file name


@dataclass(frozen=True)
class SweepRecords:
    """Records from which the figures of a sweep, or of one panel, are drawn.

    Attributes:
        frame: rows of `trials_frame`.
        history: rows of `history_frame`, the training losses.
        training: rows of `SweepReader.training`, for curves over training.
        equal_steps: rows of `SweepReader.equal_steps`, or `None`.
    """

    lab: Lab
    frame: pd.DataFrame
    history: pd.DataFrame
    training: pd.DataFrame
    equal_steps: pd.DataFrame | None = None

    @property
    def compared(self) -> list[str]:
        """The metrics of comparisons with dense: the loss gap, then sample metrics."""
        gap = [GAP_HELDOUT] if GAP_HELDOUT in self.frame else []
        return [*gap, *sample_metrics(self.frame)]

    def title(self, measured_as: str = "") -> str:
        """Return the title of this sweep's panel, e.g. beside a published one."""
        models, question = self.frame["model"].unique(), self.frame.attrs.get("comparison", "")
        network = models[0] if len(models) == 1 else f"{len(models)} networks"
        said = f"({measured_as or 'this sweep'})"
        return f"{network} {question}\n{said}" if question else f"{network} {said}"

    def compared_parts(self, metric: str) -> Iterator[SweepRecords]:
        """Yield the sweep's records, then those at equal steps if they were measured."""
        yield self
        other = self.equal_steps
        if other is None or metric not in other:
            return
        if other.loc[other["role"] == "trial", metric].notna().any():
            yield replace(self, frame=other, equal_steps=None)


@dataclass(frozen=True)
class Drawn:
    """A drawn figure; `name` is its file name without suffix."""

    name: str
    caption: str
    figure: Figure


def sample_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the sweep's own sample-quality metrics."""
    columns = [c for c in own_metrics(frame) if "@" in c and ":" not in c]
    return [c for c in columns if metric_kind(c).nature == "quality"]


def quality_metrics(frame: pd.DataFrame) -> list[str]:
    """Return the quality metrics: the `ranking_key` first, then sample metrics."""
    key = ranking_key(frame)
    return list(dict.fromkeys([*([key] if key else []), *sample_metrics(frame)]))


def shared_evaluation(
    runs: Iterable[RunFolder],
    file: str,
    order: Callable[[dict[str, Any]], float],
    planned: Collection[str] = (),
) -> tuple[str, dict[str, Any]]:
    """Return name and spec of the planned evaluation with `file`, else of the most common one; ties
    go to the last by `order`. Both are empty if there is none."""
    having, specs = Counter[str](), dict[str, dict[str, Any]]({"": {}})
    for folder in (folder for run in runs for folder in run.end_evaluations()):
        if (folder.path / file).exists() and (tree := folder.read()):
            having[folder.path.name] += 1
            specs[folder.path.name] = tree["spec"]
    keys = {name: (name in planned, n, order(specs[name]), name) for name, n in having.items()}
    best = max(keys, key=lambda name: keys[name], default="")
    return best, specs[best]


def named(name: str, metric: str) -> str:
    """Return the file name of a metric's figure: `pareto-gap-heldout`."""
    return f"{name}-{slug(metric)}"


def slug(text: str) -> str:
    """Return a metric or panel as part of a file name; a long one ends with its digest."""
    short = re.sub(r"[^\w.=+-]+", "-", text).rstrip("-")
    if len(short) <= LONGEST:
        return short
    return f"{short[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Points:
    """Data of a figure.

    Attributes:
        metric: column of the values; the baseline's difference is 0.
        rows: one per setting: `name`, `value` with `low` and `high` (NaN if missing), `state`
            (`completed`, or why there is no number), and its coordinates.
        measured_as: unit of the intervals, e.g. `95% over 3 seeds`; empty without intervals.
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
        """Index of the best value; `None` if there is none or the metric has no direction."""
        sign = metric_kind(self.metric).sign
        values = sign * self.measured["value"]
        return values.idxmin() if sign and len(values) else None


def cell_points(cells: pd.DataFrame, metric: str) -> Points:
    """Return the rows of `cells_frame` as points, with settings and costs.

    A cell has a number only if all its seeds completed. A completed cell without a number is
    `uncompared` if its baseline has no result, else `unmeasured`.
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


def seed_values(frame: pd.DataFrame, column: str) -> pd.DataFrame | None:
    """Return name and value of each seed of each cell; `None` where no cell has several.

    Args:
        column: a metric of the frame, or the difference of one to dense.
    """
    rows = with_delta(frame, column.removeprefix(DELTA))
    rows = rows[(rows["role"] != "baseline") & (rows["state"] == "completed")]
    if rows.empty or rows.groupby(["role", "cell"]).size().max() < 2:
        return None
    return pd.DataFrame({"name": rows["cell"], "value": rows[column]}).dropna()


def bare_rows(**columns: Any) -> pd.DataFrame:
    """Return rows of points without intervals, such as published ones; all have a number."""
    return pd.DataFrame({"low": np.nan, "high": np.nan, "state": "completed", **columns})
