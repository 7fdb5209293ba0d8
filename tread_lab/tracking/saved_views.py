"""Saved views of MLflow's runs page for a sweep: its cells compared, its pictures side by side."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Collection, Sequence
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
class SavedViews:
    """The two views of a sweep.

    Attributes:
        condition: the search that finds the sweep's trials and nothing else.
        metrics: the metrics that its trials have, by the names of `trials_frame`.
        ranked_by: the one of them that its cells are ranked by.
        mapped: whether starts and ends of routes differ between its trials.
        pictures: keys of the pictures that its trials have.
        seed: whose pictures are shown.
        step: the step that the pictures belong to.
        trials: how many there are.
        written: when the plan was written, in milliseconds.
    """

    sweep: str
    condition: str
    metrics: Collection[str]
    ranked_by: str | None
    mapped: bool
    pictures: Sequence[str]
    seed: int
    step: int
    trials: int
    written: int

    def tags(self) -> dict[str, str]:
        """The experiment's tags that make the views appear under `Views`."""
        views = {"": self._cells()} | ({" pictures": self._pictures()} if self.pictures else {})
        return {TAG + self._key(name): self._tag(name, state) for name, state in views.items()}

    def link(self, experiment: str) -> str:
        """The address of the comparison within MLflow's pages."""
        mode = "compareRunsMode=CHART&workflowType=machine_learning"
        return f"#/experiments/{experiment}/runs?viewStateShareKey={self._key('')}&{mode}"

    def _key(self, name: str) -> str:
        """The view's place in links; a sweep keeps it."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.condition}{name}").hex[:16]

    def _tag(self, name: str, state: dict[str, Any]) -> str:
        text = json.dumps(state, separators=(",", ":")).encode()
        times = {"createdAt": self.written, "updatedAt": self.written}
        packed = f"deflate;{base64.b64encode(zlib.compress(text)).decode()}"
        return json.dumps({"name": f"{self.sweep}{name}", **times, "state": packed})

    def _headlines(self) -> list[str]:
        """What a cell is judged by: the ranking's metric, the held-out gap, samples' quality."""
        samples = sorted(name for name in self.metrics if "@" in name and ":" not in name)
        names = dict.fromkeys([self.ranked_by or GAP_HELDOUT, GAP_HELDOUT, *samples])
        own = (name for name in names if name in self.metrics)
        return [to_mlflow(name) for name in own if metric_kind(name).nature == "quality"]

    def _cells(self) -> dict[str, Any]:
        """Bars of every cell, the map over start and end, curves; seeds averaged."""
        headlines = self._headlines()
        charts = [_chart("BAR", RESULT, name, metricKey=name) for name in headlines]
        if headlines and self.mapped:
            axes = {"x": ("route_end", "PARAM"), "y": ("route_start", "PARAM")}
            axes["z"] = (headlines[0], "METRIC")
            options = {f"{axis}axis": {"key": k, "type": t} for axis, (k, t) in axes.items()}
            charts.append(_chart("CONTOUR", RESULT, "placement", **options))
        for name in (TRAIN_LOSS, TRAIN_IMAGES_PER_S):
            charts.append(_chart("LINE", TRAINING, name, metricKey=name, **LINE))
        group = {"mode": "tag", "groupByData": "cell"}
        grouped = {"aggregateFunction": "average", "groupByKeys": [group]}
        return self._state(self.condition, charts) | {"groupBy": grouped}

    def _pictures(self) -> dict[str, Any]:
        """Samples and similarities of one seed side by side."""
        charts = [
            _chart("IMAGE", PICTURES, key, imageKeys=[key], step=self.step, showRunParams=False)
            for key in self.pictures
        ]
        return self._state(f"{self.condition} AND params.`seed` = '{self.seed}'", charts)

    def _state(self, condition: str, charts: list[dict[str, Any]]) -> dict[str, Any]:
        headlines = self._headlines()
        columns = [f"params.`{name}`" for name in COLUMNS]
        columns += [f"metrics.`{name}`" for name in dict.fromkeys([*headlines, HELDOUT_LOSS])]
        sections = dict.fromkeys(chart["metricSectionId"] for chart in charts)
        return {
            "searchFilter": condition,
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
            "groupBy": None,
            "groupsExpanded": {},
        }


RESULT, TRAINING, PICTURES = "Which cell is best", "During training", "Pictures"
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
