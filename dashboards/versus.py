"""Two sweeps side by side: the cells that both have, by paired differences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tread_lab.analysis.figures.points import Points
from tread_lab.config.errors import UserError
from tread_lab.dashboards.charts import Chart, dots
from tread_lab.dashboards.contents import file
from tread_lab.dashboards.tables import table
from tread_lab.records.lab import Lab
from tread_lab.records.metric_names import delta_column, metric_label, value_text
from tread_lab.results import ranking_key, routed, trials_frame
from tread_lab.results.intervals import t_interval


def versus(lab: Lab, first: str, second: str) -> tuple[str, pd.DataFrame]:
    """Return the metric of the first sweep, and a row for each cell that both have.

    Columns: name, value (the second sweep's less the first's, a mean over the seeds that both
    have), low and high of its 95% interval over seeds, seeds, state, and `same`: whether the two
    share their runs.

    Raises:
        UserError: a sweep is unknown or unmeasured, or the two share no cell and metric.
    """
    frames = [trials_frame(lab, lab.known_sweep(name)) for name in (first, second)]
    keys = [ranking_key(frame) for frame in frames]
    metric = keys[0]
    if metric is None or metric not in frames[1]:
        raise UserError(
            f"report: {second} must measure {metric} as {first} does. Try evaluating it."
        )
    columns = ["role", "cell", "seed", "run", metric]
    one, other = (frame[columns].dropna(subset=[metric]) for frame in frames)
    pairs = one.merge(other, on=["role", "cell", "seed"], suffixes=(":a", ":b"))
    if pairs.empty:
        raise UserError(f"report: {first} and {second} must share a measured cell, got none.")
    pairs["apart"] = pairs[f"{metric}:b"] - pairs[f"{metric}:a"]
    rows = []
    for (_, cell), own in pairs.groupby(["role", "cell"], sort=False):
        values = own["apart"].to_numpy(float)
        ends = t_interval(values) if len(values) > 1 else (float(values[0]), np.nan, np.nan)
        same = bool((own["run:a"] == own["run:b"]).all())
        rows.append((cell, *ends, len(values), "completed", same))
    names = ["name", "value", "low", "high", "seeds", "state", "same"]
    return metric, pd.DataFrame(rows, columns=names)


def versus_file(lab: Lab, first: str, second: str) -> str:
    """Return the comparison of two sweeps as one HTML text that loads nothing.

    Raises:
        UserError: as of `versus`.
    """
    metric, rows = versus(lab, first, second)
    column = delta_column(metric)
    numbers = [value_text(column, *row) for row in rows[["value", "low", "high"]].to_numpy()]
    texts = {
        "cell": rows["name"].map(routed),
        f"{second} minus {first}": numbers,
        "seeds": rows["seeds"].map(str),
        "runs": rows["same"].map({True: "shared", False: "different"}),
    }
    drawn = dots(Points(column, rows, "95% over seeds"), {})
    return file(
        "versus.html.jinja",
        title=f"{second} against {first}",
        chart=Chart(f"{metric_label(metric)}: {second} minus {first}", drawn),
        table=table(pd.DataFrame(texts)),
    )
