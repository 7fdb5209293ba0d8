"""The saved view is what MLflow's page reads, and the same each time."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from typing import Any

from tread_lab.tracking.saved_view import SavedView

VIEW = SavedView(
    sweep="placement",
    condition="tags.`tread_lab.sweep` = 'placement'",
    metrics=[
        *("train/loss", "kid@1k", "fd[fashion16-v1]@1k", "fd[fashion16-v1]@1k:low"),
        *("gap/train", "gap/heldout", "gap/heldout:low"),
    ],
    ranked_by="gap/heldout",
    trials=17,
    written=5,
)


def state_of(view: SavedView) -> dict[str, Any]:
    """What MLflow's page unpacks."""
    packed = json.loads(view.tag()[1])["state"].removeprefix("deflate;")
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def test_view_ranks_cells_and_averages_seeds() -> None:
    state = state_of(VIEW)
    assert state["orderByKey"] == "metrics.`gap/heldout`" and state["orderByAsc"]
    bars = [c["metricKey"] for c in state["compareRunCharts"] if c["type"] == "BAR"]
    assert bars == ["gap/heldout", "fd:fashion16-v1:1k", "kid:1k"]
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "cell"}]
    assert not state_of(dataclasses.replace(VIEW, metrics=["is@50k"], ranked_by="is@50k"))[
        "orderByAsc"
    ]


def test_view_key_stays_while_its_metrics_change() -> None:
    other = dataclasses.replace(VIEW, metrics=(), ranked_by=None)
    assert other.tag()[0] == VIEW.tag()[0] and other.link("7") == VIEW.link("7")
    assert VIEW.tag()[0].endswith(VIEW.link("7").partition("Key=")[2].partition("&")[0])


def test_a_thousand_trials_fit_into_a_tag() -> None:
    metrics = [f"gap/{k}:low" for k in range(40)] + [*VIEW.metrics]
    assert len(dataclasses.replace(VIEW, metrics=metrics).tag()[1]) < 20_000
