"""Numbers under the figures of rates, budgets, time to equal quality, Pareto fronts and samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tread_lab.analysis.figures.curves import (
    cost_to_reach,
    over_training,
    time_to_equal,
    training_metrics,
)
from tread_lab.analysis.figures.curves import factors_caption as factor_caption
from tread_lab.analysis.figures.points import bare_rows
from tread_lab.results import STEP


def test_cost_to_reach_interpolates_logarithms() -> None:
    curve = bare_rows(x=[1.0, 100.0], value=[3.0, 1.0])
    assert cost_to_reach(curve, 2.0) == pytest.approx(10)
    assert np.isnan(cost_to_reach(curve, 3.5)) and np.isnan(cost_to_reach(curve, 0.5))
    assert cost_to_reach(curve[::-1], 2.0) == pytest.approx(10)


METRIC = "fd[x]@1k"
STEPS = (100, 200, 400)
DENSE, ROUTED = {100: 9.0, 200: 7.0, 400: 5.0}, {100: 9.5, 200: 6.0, 400: 4.0}


def rows(role: str, cell: str, values: dict[int, float], seconds: float) -> pd.DataFrame:
    """One run of 400 steps of 16 images, measured at three steps."""
    steps = np.array(STEPS)
    gap = [values[s] - DENSE[s] if role == "trial" else np.nan for s in STEPS]
    return pd.DataFrame(
        {
            "run": cell,
            "role": role,
            "seed": 0,
            "state": "completed",
            "reason": "",
            "mixed": False,
            "baseline": "dense",
            "cell": [f"{cell} step={s}" for s in STEPS],
            STEP: steps,
            METRIC: [values[s] for s in STEPS],
            "gap/heldout": gap,
            "cost/train_flops": steps * seconds * 1e9,
            "cost/train_images": steps * 16.0,
            "cost/device_hours": steps * seconds / 3600,
        }
    )


@pytest.fixture
def stages() -> pd.DataFrame:
    parts = [rows("baseline", "dense", DENSE, 18.0), rows("trial", "2->8 s=0.5", ROUTED, 12.0)]
    frame = pd.concat(parts, ignore_index=True)
    frame.attrs |= {"axes": [STEP], "foreign": [], "planned": [METRIC], "schedules": []}
    return frame


def of_two_seeds(stages: pd.DataFrame) -> pd.DataFrame:
    """The same numbers for another seed."""
    again = stages.assign(seed=1, run=stages["run"] + "x", baseline=stages["baseline"] + "x")
    both = pd.concat([stages.assign(seed=0), again], ignore_index=True)
    both.attrs |= stages.attrs
    return both


def test_factor_takes_two_seeds(stages: pd.DataFrame) -> None:
    found = time_to_equal(stages, METRIC, cost="cost/train_flops")
    assert found.factors == () and "two seeds or more" in factor_caption(found)
    both = of_two_seeds(stages)
    faster = (both["seed"] == 1) & (both["role"] == "trial")
    both.loc[faster, "cost/train_flops"] *= 0.8
    (factor,) = time_to_equal(both, METRIC, cost="cost/train_flops").factors
    assert factor.low < factor.value < factor.high


def test_stages_make_curves_over_training(stages: pd.DataFrame) -> None:
    found, images, hours = over_training(stages, METRIC).values()
    assert found.rows["x"].tolist() == [*STEPS] * 2
    assert images.rows["x"].tolist() == [1600, 3200, 6400] * 2
    assert [*over_training(stages, METRIC)] == ["training steps", "training images", "device-hours"]
    assert hours.rows["x"].tolist()[2::3] == [2.0, 4 / 3]
    stages = of_two_seeds(stages)
    (factor,) = time_to_equal(stages, METRIC, cost="cost/train_flops").factors
    at = 100 * 2 ** (1 + 1 / 2) * 12.0  # halfway between 6 and 4, linear in the logarithm
    assert (factor.level, factor.cost) == (5.0, pytest.approx(at * 1e9))
    assert factor.value == pytest.approx(400 * 18.0 / at)
    scores = stages.assign(**{"is@10k": 20 - stages[METRIC]}).drop(
        columns=METRIC
    )  # higher is better
    (mirrored,) = time_to_equal(scores, "is@10k", cost="cost/train_flops").factors
    assert (mirrored.level, mirrored.cost) == (15.0, pytest.approx(at * 1e9))


def test_matched_runs_make_no_curve(stages: pd.DataFrame) -> None:
    stages["rate"] = [np.nan, np.nan, np.nan, 0.5, 0.5, 0.5]
    stages.attrs["axes"] = ["rate", STEP]
    ends = stages.iloc[[0, 4]]  # dense and a route, each once
    control = ends.iloc[[0]].assign(role="control", cell="control batch=10", step=120)
    frame = pd.concat([ends, control], ignore_index=True)
    frame.attrs |= stages.attrs
    assert training_metrics(stages) == ["gap/heldout", METRIC]
    assert training_metrics(frame) == []
