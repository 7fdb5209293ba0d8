"""Fronts of quality against training FLOPs and against the cost of a guided image."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import FD
from tread_lab.analysis.figures.pareto import (
    guidance_front,
    pareto_front,
)
from tread_lab.records.metric_names import SAMPLE_FLOPS
from tread_lab.records.run_state import RunState


def test_front_is_what_none_beats() -> None:
    cost = np.array([1.0, 2.0, 2.0, 3.0, 4.0])
    value = np.array([5.0, 4.0, 3.0, 3.0, 1.0])
    assert list(pareto_front(cost, value)) == [True, False, True, False, True]
    assert list(pareto_front(cost, -value, lower=False)) == [True, False, True, False, True]


SETTINGS = ("", " w=1.5", " w=2", " w=2 SG(0.5/0.9)")


@pytest.fixture
def guided() -> pd.DataFrame:
    """A dense and a routed run of two seeds, FD and cost known for every guidance."""
    frame = pd.DataFrame({"seed": [0, 0, 1, 1], "cell": ["dense", "2->8 s=0.5"] * 2})
    frame = frame.assign(run=frame.index, role=["baseline", "trial"] * 2)
    frame = frame.assign(reason="", mixed=False)
    frame["state"], frame["baseline"], frame["steps_done"] = RunState.COMPLETED, None, 400
    for number, setting in enumerate(SETTINGS):
        frame[FD + setting] = 10.0 * number + frame["seed"]
        frame[SAMPLE_FLOPS + setting] = 1e9 * number
    frame.attrs["planned"] = [FD + setting for setting in SETTINGS]
    return frame


def test_guidance_points_have_their_cost(guided: pd.DataFrame) -> None:
    found = guidance_front(guided, FD)
    dense, routed = found.rows[::2], found.rows[1::2]
    assert dense["name"].tolist() == [f"dense{setting}" for setting in SETTINGS]
    assert dense["cost"].tolist() == routed["cost"].tolist() == [0, 1e9, 2e9, 3e9]
    assert dense["value"].tolist() == [0.5, 10.5, 20.5, 30.5]  # the mean over two seeds
    assert found.measured_as == "95% over 2 seeds" and not found.relative
    guided.loc[3, "state"] = RunState.FAILED  # of the routed cell
    left = guidance_front(guided, FD).rows
    assert left["name"].tolist() == [f"dense{setting}" for setting in SETTINGS]
