"""The prepared comparison of a sweep in MLflow: its charts, its note, and the address of both."""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections import Counter
from typing import Any

from tread_lab.config.labels import plain_markdown
from tread_lab.config.units import counts_text
from tread_lab.records.caveats import mixtures
from tread_lab.records.metric_names import (
    GAP_HELDOUT,
    TRAIN_FLOPS,
    TRAIN_IMAGES_PER_S,
    TRAIN_LOSS,
    metric_kind,
    metric_label,
    mlflow_name,
)
from tread_lab.records.run_state import RunState
from tread_lab.results import own_metrics, ranking_caption, ranking_key
from tread_lab.results.answer import answer
from tread_lab.results.ranking import formatted, ranking, to_markdown
from tread_lab.tracking.shown_run import ShownSweep

TAG = "mlflow.sharedViewState."  # as MLflow 3.17 keeps views; another version passes over them
COMPARE = "Compare the cells"  # by which a sync tells its own note from a user's
SHOWN = 12  # rows of the ranking
LONGEST = 4_500  # characters of a note
MOST_DRAWN = 200  # trials that MLflow's page draws at once; of more it shows the best
RESULT, SETTINGS, TRAINING, PICTURES = "Cells", "Settings", "During training", "Pictures"


def view_key(name: str) -> str:
    """Return the place of a sweep's view in links."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"tread-lab {name}").hex[:16]


def address(name: str, experiment: str) -> str:
    """Return where MLflow's pages compare the cells of a sweep."""
    mode = "compareRunsMode=CHART&workflowType=machine_learning"
    return f"#/experiments/{experiment}/runs?viewStateShareKey={view_key(name)}&{mode}"


def note(shown: ShownSweep, experiment: str) -> str:
    """Return the note of a sweep as Markdown: question, answer, link, and the best cells.

    The answer is there once all runs have ended.
    """
    plan, frame, found = shown.plan, shown.frame, ""
    if all(RunState(state).ended for state in frame["state"]):
        ended = answer(shown.lab, frame)
        found = f"{ended.sentence} {ended.certainty}"
    states = counts_text(Counter(map(str, frame["state"])))
    link = f"[{COMPARE}]({address(plan.name, experiment)})"
    parts = [f"**{plain_markdown(plan.question or plan.name)}**", plain_markdown(found)]
    parts += [f"{link}; {states}", *mixtures(shown.lab, dict.fromkeys(frame["run"]))]
    if key := ranking_key(frame):
        numbers = ranking(frame, key)
        caption = ranking_caption(key, plan.comparison)
        rest = f"; {len(numbers) - SHOWN} more cells" * (len(numbers) > SHOWN)
        parts += [f"{caption}{rest}:", to_markdown(formatted(numbers.head(SHOWN), key))]
    return "\n\n".join(filter(None, parts))[:LONGEST]


def view(shown: ShownSweep, condition: str) -> str:
    """Return the text of the tag that makes the comparison open.

    Bars and curves are of cells, their seeds averaged. There is no contour, which would
    interpolate over cells that never ran.

    Args:
        condition: the search that finds the runs of the sweep and nothing else.
    """
    frame = shown.frame
    names = dict.fromkeys([ranking_key(frame) or GAP_HELDOUT, GAP_HELDOUT, *own_metrics(frame)])
    quality = [name for name in names if name in shown.metrics and ":" not in name]
    heads = [name for name in quality if metric_kind(name).nature == "quality"]
    own = [mlflow_name(name) for name in heads]
    axes = [mlflow_name(axis) for axis in frame.attrs["axes"]]
    drawn = [*heads, *({TRAIN_FLOPS} & {*shown.metrics})]
    charts = [_chart("BAR", RESULT, _title(name), metricKey=mlflow_name(name)) for name in drawn]
    if axes and own:
        both = {"selectedParams": axes, "selectedMetrics": own[:1], "showAllRuns": True}
        charts.append(_chart("PARALLEL", SETTINGS, f"{', '.join(axes)} and {own[0]}", **both))
    for name in (TRAIN_LOSS, TRAIN_IMAGES_PER_S):
        charts.append(_chart("LINE", TRAINING, name, metricKey=name, **LINE))
    pictures = [picture for run in shown.runs[:1] for picture in run.pictures()]
    if keys := [*dict.fromkeys(picture.key for picture in pictures)]:
        end = max(picture.step for picture in pictures)  # a row of the grid for each run
        charts.append(_chart("IMAGE", PICTURES, ", ".join(keys), imageKeys=keys, step=end))
    params = dict.fromkeys(["route", *axes, "seed"])
    order = f"metrics.`{own[0]}`" if own else "attributes.start_time"
    state = {
        "searchFilter": condition,
        "orderByKey": order,
        "orderByAsc": not own or metric_kind(heads[0]).sign > 0,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [
            *(f"params.`{name}`" for name in params),
            *(f"metrics.`{name}`" for name in own),
            "tags.`state`",
        ],
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOW_ALL" if len(frame) <= MOST_DRAWN else "FIRST_20_RUNS",
        "compareRunCharts": charts,
        "compareRunSections": [
            {"uuid": name, "name": name, "display": True, "isReordered": True, **SIZES[name]}
            for name in dict.fromkeys(chart["metricSectionId"] for chart in charts)
        ],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    times = {"createdAt": 0, "updatedAt": 0}
    return json.dumps({"name": shown.plan.name, **times, "state": f"deflate;{packed}"})


SIZES = {  # a tall card has room for the name of each bar in its legend
    RESULT: {"columns": 2, "cardHeight": 700},
    SETTINGS: {"columns": 1, "cardHeight": 500},
    TRAINING: {"columns": 2, "cardHeight": 500},
    PICTURES: {"columns": 1, "cardHeight": 640},
}
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


def _title(name: str) -> str:
    """Return `gap/heldout: Δ held-out loss, lower is better`: bars have no axis label."""
    label, better = metric_label(name), metric_kind(name).better
    return f"{name}: {label}" + (f", {better} is better" if better else "")


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
