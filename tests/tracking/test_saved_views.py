"""Saved views are what MLflow's pages read, and the same each time."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from typing import Any

from tread_lab.tracking.saved_views import TAG, SavedViews

VIEWS = SavedViews(
    sweep="placement",
    condition="tags.`tread_lab.sweep` = 'placement'",
    metrics=["gap/heldout", "gap/heldout:low", "gap/train", "fd[fashion16-v1]@1k", "train/loss"],
    ranked_by="gap/heldout",
    varied={"route_start", "route_end", "seed"},
    pictures=["pictures/samples_64"],
    seed=0,
    step=1400,
    trials=17,
    written=5,
)


def states(views: SavedViews) -> dict[str, dict[str, Any]]:
    """Name of a view -> its state, unpacked as MLflow's page unpacks it."""
    found = {}
    for key, value in views.tags().items():
        assert key.startswith(TAG)
        tree = json.loads(value)
        head, _, packed = tree["state"].partition(";")
        assert head == "deflate"
        found[tree["name"]] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def test_a_thousand_trials_fit_into_a_tag() -> None:
    metrics = [f"gap/{k}:low" for k in range(40)] + [*VIEWS.metrics]
    tags = dataclasses.replace(VIEWS, metrics=metrics).tags()
    assert max(map(len, tags.values())) < 20_000


def test_the_best_is_first_also_where_more_is_better() -> None:
    metrics = ["is@50k", "sharpness@1k", "fd@1k"]
    scored = dataclasses.replace(VIEWS, metrics=metrics, ranked_by="is@50k")
    state = states(scored)["placement"]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`is:50k`", False)
    assert "metrics.`sharpness:1k`" not in state["selectedColumns"]


BEST, LINE = "Which cell is best", {
    "lineSmoothness": 0, "xAxisScaleType": "linear", "scaleType": "linear", "range": {},
    "xAxisKey": "step", "selectedXAxisMetricKey": "", "yAxisKey": "metric", "yAxisExpressions": [],
    "ignoreOutliers": False, "useGlobalXaxisKey": True, "useGlobalLineSmoothing": True,
}  # fmt: skip


def test_the_places_of_views_are_those_of_their_sweep() -> None:
    keys = ("f81efce94e1754f6", "c6609b86fa575184")
    assert list(VIEWS.tags()) == [f"mlflow.sharedViewState.{key}" for key in keys]
    trees = [json.loads(value) for value in VIEWS.tags().values()]
    assert [(tree["name"], tree["createdAt"], tree["updatedAt"]) for tree in trees] == [
        ("placement", 5, 5), ("placement pictures", 5, 5)
    ]  # fmt: skip
    assert VIEWS.link("7") == (
        "#/experiments/7/runs?viewStateShareKey=f81efce94e1754f6&compareRunsMode=CHART"
        "&workflowType=machine_learning"
    )
    assert list(dataclasses.replace(VIEWS, pictures=()).tags()) == list(VIEWS.tags())[:1]


def test_every_run_is_shown_up_to_200_and_axes_stand_in_their_order() -> None:
    for trials, mode in ((200, "SHOW_ALL"), (201, "FIRST_20_RUNS")):
        grown = dataclasses.replace(VIEWS, trials=trials, metrics=())
        assert {view["runsHiddenMode"] for view in states(grown).values()} == {mode}
        assert states(grown)["placement"]["orderByKey"] == "attributes.start_time"
        assert (grown.tags().keys(), grown.link("1")) == (VIEWS.tags().keys(), VIEWS.link("1"))
    varied = {"selection_rate", "route_length", "route_end", "seed"}
    views = states(dataclasses.replace(VIEWS, varied=varied))
    assert "CONTOUR" not in {chart["type"] for chart in views["placement"]["compareRunCharts"]}
    axes = views["placement pictures"]["compareRunCharts"][-1]
    assert axes["selectedParams"] == ["route_end", "route_length", "selection_rate"]


def chart(uuid: str, kind: str, section: str, title: str, **options: Any) -> dict[str, Any]:
    common = {"runsCountToCompare": 100, "deleted": False, "isGenerated": False}
    named = {"uuid": uuid, "type": kind, "metricSectionId": section, "displayName": title}
    return {**named, **common, **options}


COMMON = {
    "orderByKey": "metrics.`gap/heldout`", "orderByAsc": True, "startTime": "ALL",
    "lifecycleFilter": "Active", "datasetsFilter": [], "modelVersionFilter": "All Runs",
    "selectedColumns": [
        "params.`route`", "params.`selection_rate`", "params.`seed`", "metrics.`gap/heldout`",
        "metrics.`fd:fashion16-v1:1k`", "metrics.`heldout/loss`", "tags.`state`",
    ],
    "columnOrder": [], "columnWidths": {}, "runsHiddenMode": "SHOW_ALL", "viewMaximized": False,
    "runListHidden": False, "isAccordionReordered": True, "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True, "groupsExpanded": {},
}  # fmt: skip


def sections(*names: str) -> list[dict[str, Any]]:
    return [{"uuid": x, "name": x, "display": True, "isReordered": True} for x in names]


def test_views_have_every_field_that_mlflows_page_reads() -> None:
    fd = "fd:fashion16-v1:1k"
    axes = {
        "xaxis": {"key": "route_end", "type": "PARAM"},
        "yaxis": {"key": "route_start", "type": "PARAM"},
        "zaxis": {"key": "gap/heldout", "type": "METRIC"},
    }
    group = {"mode": "tag", "groupByData": "cell"}
    assert states(VIEWS) == {
        "placement": {
            **COMMON,
            "searchFilter": "tags.`tread_lab.sweep` = 'placement'",
            "compareRunCharts": [
                chart("6a829b49a4c05766", "BAR", BEST, "gap/heldout", metricKey="gap/heldout"),
                chart("c2a8a26d4ada5f48", "BAR", BEST, fd, metricKey=fd),
                chart("ba1c81e311ab565b", "CONTOUR", BEST, "placement", **axes),
                *(
                    chart(uuid, "LINE", "During training", name, metricKey=name, **LINE)
                    for uuid, name in (
                        ("36c6fa37e37254a2", "train/loss"),
                        ("0a976d724d965fc7", "train/images_per_s"),
                    )
                ),
                *(
                    chart(uuid, "BAR", "Other measures", name, metricKey=name, deleted=hidden)
                    for uuid, name, hidden in (
                        ("306e2e7e9e9c58c1", "gap/heldout:low", True),
                        ("77337331440256d8", "gap/train", False),
                    )
                ),
            ],
            "compareRunSections": sections(BEST, "During training", "Other measures"),
            "groupBy": {"aggregateFunction": "average", "groupByKeys": [group]},
        },
        "placement pictures": {
            **COMMON,
            "searchFilter": "tags.`tread_lab.sweep` = 'placement' AND params.`seed` = '0'",
            "compareRunCharts": [
                chart(
                    "1423f20a0dd45614", "IMAGE", "Pictures", "pictures/samples_64",
                    imageKeys=["pictures/samples_64"], step=1400, showRunParams=False,
                ),
                chart(
                    "0c3dce383c8b569d", "PARALLEL", BEST, "axes", showAllRuns=True,
                    selectedParams=["route_start", "route_end"],
                    selectedMetrics=["gap/heldout", fd],
                ),
            ],
            "compareRunSections": sections("Pictures", BEST),
            "groupBy": None,
        },
    }  # fmt: skip
