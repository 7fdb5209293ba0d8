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
    metrics={
        "gap/heldout": 0,
        "gap/heldout:low": 0,
        "gap/train": 0,
        "fd[fashion16-v1]@1k": 0,
        "train/loss": 0,
    },
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


def charts(state: dict[str, Any]) -> dict[str, str]:
    return {c["displayName"]: c["type"] for c in state["compareRunCharts"] if not c["deleted"]}


def test_cells_are_compared_by_bars_a_map_and_curves() -> None:
    state = states(VIEWS)["placement"]
    assert charts(state) == {
        "gap/heldout": "BAR",
        "fd:fashion16-v1:1k": "BAR",
        "placement": "CONTOUR",
        "train/loss": "LINE",
        "train/images_per_s": "LINE",
        "gap/train": "BAR",
    }
    drawn = [(c["displayName"], c["metricSectionId"]) for c in state["compareRunCharts"]]
    assert len(dict(drawn)) == len(drawn)  # each once, what a cell is judged by at the top
    assert dict(drawn)["gap/heldout"] == "Which cell is best"
    assert dict(drawn)["gap/train"] == "Other measures"
    group = {"mode": "tag", "groupByData": "cell"}
    assert state["groupBy"] == {"aggregateFunction": "average", "groupByKeys": [group]}
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`gap/heldout`", True)
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} <= sections


def test_pictures_are_those_of_one_seed() -> None:
    state = states(VIEWS)["placement pictures"]
    assert state["searchFilter"].endswith("AND params.`seed` = '0'")
    image = state["compareRunCharts"][0]
    assert (image["imageKeys"], image["step"]) == (["pictures/samples_64"], 1400)
    assert state["groupBy"] is None


def test_views_are_the_same_each_time_and_keep_their_link() -> None:
    assert VIEWS.tags() == VIEWS.tags()
    grown = dataclasses.replace(VIEWS, metrics={}, trials=1000)
    assert grown.tags().keys() == VIEWS.tags().keys()
    assert grown.link("1") == VIEWS.link("1")
    assert states(grown)["placement"]["runsHiddenMode"] == "FIRST_20_RUNS"
    assert states(grown)["placement"]["orderByKey"] == "attributes.start_time"


def test_a_thousand_trials_fit_into_a_tag() -> None:
    metrics = {f"gap/{k}:low" for k in range(40)} | set(VIEWS.metrics)
    tags = dataclasses.replace(VIEWS, metrics=metrics).tags()
    assert max(map(len, tags.values())) < 20_000


def test_the_best_is_first_also_where_more_is_better() -> None:
    scored = dataclasses.replace(VIEWS, metrics={"is@50k": 0, "sharpness@1k": 0})
    state = states(scored)["placement"]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`is:50k`", False)
    assert "metrics.`sharpness:1k`" not in state["selectedColumns"]
