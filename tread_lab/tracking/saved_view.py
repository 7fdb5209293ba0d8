"""The saved view of MLflow's runs page for a sweep: its cells compared."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    HELDOUT_LOSS,
    TRAIN_IMAGES_PER_S,
    TRAIN_LOSS,
    metric_kind,
)
from tread_lab.tracking.projection import to_mlflow

TAG = "mlflow.sharedViewState."  # as MLflow 3.17 keeps views; another version passes over them
COLUMNS = ("route", "selection_rate", "seed")
MOST_DRAWN = 200  # trials that MLflow's page draws at once; of more it shows the best


@dataclass(frozen=True)
class SavedView:
    """The comparison of a sweep's cells.

    Attributes:
        condition: the search that finds the sweep's trials and nothing else.
        metrics: the metrics that its trials have, by the names of `trials_frame`.
        ranked_by: the one of them that its cells are ranked by.
        trials: how many there are.
        written: when the plan was written, in milliseconds.
    """

    sweep: str
    condition: str
    metrics: Collection[str]
    ranked_by: str | None
    trials: int
    written: int

    def tag(self) -> tuple[str, str]:
        """The key and value of the experiment's tag that makes the view appear under `Views`."""
        text = json.dumps(self._state(), separators=(",", ":")).encode()
        times = {"createdAt": self.written, "updatedAt": self.written}
        packed = f"deflate;{base64.b64encode(zlib.compress(text)).decode()}"
        return TAG + self._key, json.dumps({"name": self.sweep, **times, "state": packed})

    def link(self, experiment: str) -> str:
        """The address of the comparison within MLflow's pages."""
        mode = "compareRunsMode=CHART&workflowType=machine_learning"
        return f"#/experiments/{experiment}/runs?viewStateShareKey={self._key}&{mode}"

    @property
    def _key(self) -> str:
        """The view's place in links; a sweep keeps it."""
        return uuid.uuid5(uuid.NAMESPACE_URL, self.condition).hex[:16]

    def _headlines(self) -> list[str]:
        """What a cell is judged by: the ranking's metric, the held-out gap, samples' quality."""
        samples = sorted(name for name in self.metrics if "@" in name and ":" not in name)
        names = dict.fromkeys([self.ranked_by or GAP_HELDOUT, GAP_HELDOUT, *samples])
        own = (name for name in names if name in self.metrics)
        return [to_mlflow(name) for name in own if metric_kind(name).nature == "quality"]

    def _state(self) -> dict[str, Any]:
        """Bars of every cell and curves, seeds averaged; the table in the order of the ranking."""
        headlines = self._headlines()
        charts = [_chart("BAR", RESULT, name, metricKey=name) for name in headlines]
        for name in (TRAIN_LOSS, TRAIN_IMAGES_PER_S):
            charts.append(_chart("LINE", TRAINING, name, metricKey=name, **LINE))
        group = {"mode": "tag", "groupByData": "cell"}
        columns = [f"params.`{name}`" for name in COLUMNS]
        columns += [f"metrics.`{name}`" for name in dict.fromkeys([*headlines, HELDOUT_LOSS])]
        sections = dict.fromkeys(chart["metricSectionId"] for chart in charts)
        return {
            "searchFilter": self.condition,
            "orderByKey": f"metrics.`{headlines[0]}`" if headlines else "attributes.start_time",
            "orderByAsc": not headlines or metric_kind(headlines[0]).sign > 0,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [*columns, "tags.`state`"],
            "columnOrder": [],
            "columnWidths": {},
            "runsHiddenMode": "SHOW_ALL" if self.trials <= MOST_DRAWN else "FIRST_20_RUNS",
            "compareRunCharts": charts,
            "compareRunSections": [
                {"uuid": name, "name": name, "display": True, "isReordered": True}
                for name in sections
            ],
            "viewMaximized": False,
            "runListHidden": False,
            "isAccordionReordered": True,
            "useGroupedValuesInCharts": True,
            "hideEmptyCharts": True,
            "groupBy": {"aggregateFunction": "average", "groupByKeys": [group]},
            "groupsExpanded": {},
        }


RESULT, TRAINING = "Which cell is best", "During training"
LINE = {
    "lineSmoothness": 0,
    "xAxisScaleType": "linear",
    "scaleType": "linear",
    "range": {},
    "xAxisKey": "step",
    "selectedXAxisMetricKey": "",
    "yAxisKey": "metric",
    "yAxisExpressions": [],
    "ignoreOutliers": False,
    "useGlobalXaxisKey": True,
    "useGlobalLineSmoothing": True,
}


def _chart(kind: str, section: str, title: str, **options: Any) -> dict[str, Any]:
    return {
        "uuid": uuid.uuid5(uuid.NAMESPACE_URL, f"{kind} {title}").hex[:16],
        "type": kind,
        "runsCountToCompare": 100,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": title,
        **options,
    }
