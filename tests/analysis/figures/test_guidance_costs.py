"""The figure of guidance shows every setting at its cost, told apart by method and cell."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.synthetic import FD
from tread_lab.analysis.figures.guidance_costs import (
    by_cell,
    caption,
    draw_guidance_costs,
    guidance_costs,
)
from tread_lab.analysis.figures.style import figure
from tread_lab.records.metric_names import SAMPLE_FLOPS
from tread_lab.records.status import RunState

SETTINGS = ("", " w=1.5", " w=2", " w=2 SG(0.5/0.9)")


@pytest.fixture
def frame() -> pd.DataFrame:
    """A dense and a routed run of two seeds, FD and cost known for every guidance."""
    frame = pd.DataFrame({"seed": [0, 0, 1, 1], "cell": ["dense", "2->8 s=0.5"] * 2})
    frame = frame.assign(run=frame.index, role=["baseline", "trial"] * 2, reason="")
    frame["state"], frame["baseline"], frame["steps_done"] = RunState.COMPLETED, None, 400
    for number, setting in enumerate(SETTINGS):
        frame[FD + setting] = 10.0 * number + frame["seed"]
        frame[SAMPLE_FLOPS + setting] = 1e9 * number
    frame.attrs["planned"] = [FD + setting for setting in SETTINGS]
    return frame


def test_every_setting_is_a_point_at_its_cost(frame: pd.DataFrame) -> None:
    cells = by_cell(guidance_costs(frame, FD))
    assert list(cells) == ["dense", "2->8 s=0.5"]
    dense = cells["dense"]
    assert [p.method for p in dense] == ["none", "CFG", "CFG", "SG"]
    assert [p.weight for p in dense] == [1, 1.5, 2, 2]
    assert [p.flops for p in dense] == [0, 1e9, 2e9, 3e9]
    assert [p.value for p in dense] == [0.5, 10.5, 20.5, 30.5]  # the mean over two seeds


def test_a_cell_without_all_its_seeds_has_no_points(frame: pd.DataFrame) -> None:
    frame.loc[3, "state"] = RunState.FAILED  # of the routed cell
    assert list(by_cell(guidance_costs(frame, FD))) == ["dense"]


@pytest.mark.parametrize(("metric", "best"), [(FD, 0.5), ("is@10k", 0.52)])
def test_the_best_has_its_weight_where_points_crowd(
    frame: pd.DataFrame, metric: str, best: float
) -> None:
    found = guidance_costs(frame, FD)
    values = (0.52, 0.51, 0.5, 10.0)
    crowd = [replace(p, flops=1e9, value=v) for p, v in zip(found[:4], values)]
    _, axes = figure(columns=2)
    draw_guidance_costs([*crowd, *found[4:]], metric, axes)
    assert (1.0, best) in [text.xy for text in axes[0].texts]


def test_the_caption_names_the_best_setting_of_each_cell(frame: pd.DataFrame) -> None:
    points = [
        replace(point, value=5.0 if point.weight == 1.5 else 1.0)
        for point in guidance_costs(frame, FD)
    ]
    more, less = caption(points, "is@10k"), caption(points, FD)
    assert "1.5" in more and "1.5" not in less, (more, less)


def test_a_metric_without_settings_has_no_points(paper_frame: pd.DataFrame) -> None:
    assert guidance_costs(paper_frame, FD) == []
