"""A saved view of MLflow's runs page that compares the cells of a sweep."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tread_lab.records.names import GAP_HELDOUT, HELDOUT_LOSS, IMAGES_PER_S, TRAIN_LOSS
from tread_lab.tracking.metric_names import from_mlflow

TAG = "mlflow.sharedViewState."
AXES = ("route_start", "route_end", "route_length", "selection_rate")
COLUMNS = ("route", "selection_rate", "seed")


@dataclass(frozen=True)
class SavedView:
    """What a sweep's view shows.

    Attributes:
        condition: the search that finds the sweep's trials and nothing else.
        metrics: the metrics that its trials have.
        varied: the parameters that differ between its trials.
        written: when the plan was written, in milliseconds.
    """

    sweep: str
    condition: str
    metrics: Collection[str]
    varied: Collection[str]
    written: int

    @property
    def key(self) -> str:
        """The view's place in links; a sweep keeps it."""
        return uuid.uuid5(uuid.NAMESPACE_URL, self.condition).hex[:16]

    def tag(self) -> tuple[str, str]:
        """The experiment's tag that makes the view appear under `Views`."""
        text = json.dumps(self._state(), separators=(",", ":"))
        state = f"deflate;{base64.b64encode(zlib.compress(text.encode())).decode()}"
        times = {"createdAt": self.written, "updatedAt": self.written}
        return TAG + self.key, json.dumps({"name": self.sweep, **times, "state": state})

    def link(self, experiment: str) -> str:
        """The address of the view within MLflow's pages."""
        return f"#/experiments/{experiment}/runs?viewStateShareKey={self.key}&compareRunsMode=CHART"

    def _headlines(self) -> list[str]:
        """What a cell is judged by, the held-out gap first, then the metrics of samples."""
        samples = sorted(name for name in self.metrics if from_mlflow(name) != name)
        return [name for name in (GAP_HELDOUT, *samples) if name in self.metrics]

    def _state(self) -> dict[str, Any]:
        headlines = self._headlines()
        columns = [f"params.`{name}`" for name in COLUMNS]
        columns += [f"metrics.`{name}`" for name in (*headlines, HELDOUT_LOSS)]
        order = f"metrics.`{headlines[0]}`" if headlines else "attributes.start_time"
        group = {"mode": "tag", "groupByData": "cell"}
        return {
            "searchFilter": self.condition,
            "orderByKey": order,
            "orderByAsc": True,
            "startTime": "ALL",
            "lifecycleFilter": "Active",
            "datasetsFilter": [],
            "modelVersionFilter": "All Runs",
            "selectedColumns": [*columns, "tags.`state`"],
            "columnOrder": [],
            "columnWidths": {},
            "runsHiddenMode": "SHOW_ALL",
            "compareRunCharts": [*self._charts(headlines), *self._hidden()],
            "compareRunSections": [
                {"uuid": name, "name": name, "display": True, "isReordered": True}
                for name in SECTIONS
            ],
            "viewMaximized": False,
            "runListHidden": False,
            "isAccordionReordered": True,
            "useGroupedValuesInCharts": True,
            "hideEmptyCharts": True,
            "groupBy": {"aggregateFunction": "average", "groupByKeys": [group]},
            "groupsExpanded": {},
        }

    def _charts(self, headlines: Sequence[str]) -> list[dict[str, Any]]:
        charts = [_chart("BAR", RESULT, name, metricKey=name) for name in headlines]
        if headlines and {"route_start", "route_end"} <= set(self.varied):
            axes = {
                "xaxis": {"key": "route_end", "type": "PARAM"},
                "yaxis": {"key": "route_start", "type": "PARAM"},
                "zaxis": {"key": headlines[0], "type": "METRIC"},
            }
            charts.append(_chart("CONTOUR", RESULT, f"{headlines[0]} by start and end", **axes))
        varied = [name for name in AXES if name in self.varied]
        if headlines and varied:
            chosen = {"selectedParams": varied, "selectedMetrics": list(headlines)}
            charts.append(_chart("PARALLEL", RESULT, "all axes", **chosen, showAllRuns=True))
        for name in (TRAIN_LOSS, IMAGES_PER_S):
            charts.append(_chart("LINE", TRAINING, name, metricKey=name, **LINE))
        return charts

    def _hidden(self) -> list[dict[str, Any]]:
        """Charts MLflow would draw by itself, of what stands beside another number already."""
        return [
            _chart("LINE", TRAINING, name, metricKey=name, **LINE) | {"deleted": True}
            for name in sorted(self.metrics)
            if name.endswith(("_low", "_high"))
        ]


RESULT, TRAINING = SECTIONS = ("Which cell is best", "During training")
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
