"""Columns of frames: their names, their order, and values as a column holds them."""

from __future__ import annotations

import pandas as pd
import pytest

from tread_lab.config import UserError
from tread_lab.results.columns import own_metrics, require_metric

COLUMNS = ["run", "state", "cost/a", "gap/b", "fd@1k", "throughput/c", "heldout/loss", "gap/b:low"]


def test_what_another_sweep_measured_of_some_runs_is_not_our_own() -> None:
    frame = pd.DataFrame(
        {
            "state": ["completed", "completed", "failed"],
            "a/x": [1.0, None, None],
            "b/x": [1.0, 2.0, None],
            "c/x": [1.0, None, None],
        }
    )
    frame.attrs["foreign"] = ("a/x", "b/x")
    assert own_metrics(frame) == ["b/x", "c/x"]
    frame.attrs.clear()
    assert own_metrics(frame) == ["a/x", "b/x", "c/x"]


def test_an_absent_metric_has_a_near_miss_that_is_no_interval() -> None:
    frame = pd.DataFrame(columns=["gap/b:low", "gap/bc", "seed"])
    require_metric(frame, "gap/bc")
    with pytest.raises(UserError, match=r"no metric 'gap/b:lo' in this sweep.*gap/bc"):
        require_metric(frame, "gap/b:lo")
    with pytest.raises(UserError, match=r"^no metric 'seed' in this sweep \(known: gap/bc\)$"):
        require_metric(frame, "seed")
    with pytest.raises(UserError, match="no metric 'gap/bc:low' in this sweep"):
        require_metric(frame.assign(**{"gap/bc:low": 0.0}), "gap/bc:low")
