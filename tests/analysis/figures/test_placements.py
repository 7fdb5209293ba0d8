"""Placements are compared by the sign of their metric, and their captions count what differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest

from tests.four_sweeps import ENDINGS
from tests.synthetic import FD, PAPER_PLACEMENTS, fd_gap, heldout_gap
from tread_lab.analysis.figures.curves import rates
from tread_lab.analysis.figures.effects import cell_gaps, two_ways
from tread_lab.analysis.figures.pareto import pareto
from tread_lab.analysis.figures.placements import (
    chance_of_order,
    order_text,
    placements,
    published_placements,
    routes,
)
from tread_lab.analysis.paper_tables import sweep_table
from tread_lab.config import UserError
from tread_lab.results.ranking import ranking


def test_placements_equal_the_true_differences(paper_frame: pd.DataFrame) -> None:
    gaps, samples = (placements(paper_frame, metric) for metric in ("gap/heldout", FD))
    assert samples.metric == f"delta/{FD}" and tuple(routes(gaps)) == PAPER_PLACEMENTS
    for route, gap, sample in zip(routes(gaps), gaps.rows.iloc, samples.rows.iloc):
        if route in ENDINGS:
            assert gap["state"] == ENDINGS[route] and np.isnan(gap["value"])
        else:
            assert gap["value"] == pytest.approx(heldout_gap(route))
            assert gap["low"] < gap["value"] < gap["high"]
            assert sample["value"] == pytest.approx(fd_gap(route))
    assert gaps.rows.loc[gaps.best, "name"] == "2->8 s=0.5"
    assert gaps.measured_as == "95% over 32 images of 1 seed"
    frame = paper_frame.copy()
    frame.loc[frame["route"] == "2->8", FD] = np.nan
    assert placements(frame, FD).rows.loc[gaps.best, "state"] == "unmeasured"
    dense = frame[frame["role"] == "baseline"].assign(role="trial", baseline=frame["run"])
    assert routes(placements(pd.concat([frame, dense]), FD)) == routes(gaps)


@pytest.mark.parametrize(
    "numbers",
    [cell_gaps, pareto, placements, ranking, rates, sweep_table, two_ways],
)
def test_unknown_metric_names_the_nearest(
    numbers: Callable[[pd.DataFrame, str], object], paper_frame: pd.DataFrame
) -> None:
    with pytest.raises(UserError, match="did you mean 'gap/heldout'"):
        numbers(paper_frame, "gap/heldot")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (range(8), "1 (p = 0.0"),
        ([0, 1, 2], "1; no clear trend."),
        ([3, 1, 0, 2, 5, 4], "0.543 (p = 0."),
        ([1, 1, 1, 1], ""),
    ],
)
def test_trend_is_claimed_with_its_p(values: Sequence[float], said: str) -> None:
    numbers = np.array(values, dtype=float)
    places = [(0, end) for end in range(len(numbers))]
    assert order_text(np.arange(float(len(numbers))), numbers, places, "up").startswith(said)
    assert bool(said) == bool(order_text(np.arange(float(len(numbers))), -numbers, places, "up"))


def test_smooth_maps_agree_by_chance_as_often_as_p_says() -> None:
    places, rng = routes(published_placements()), np.random.default_rng(0)
    ends_K2 = np.array(places, dtype=float)
    away_KK = np.abs(ends_K2[:, None] - ends_K2).sum(axis=-1)
    root_KK = np.linalg.cholesky(np.exp(-away_KK / 6) + 1e-9 * np.eye(len(places)))
    fixed_K = root_KK @ rng.standard_normal(len(places))
    chances = [
        chance_of_order(fixed_K, root_KK @ rng.standard_normal(len(places)), places)
        for _ in range(200)
    ]
    assert np.mean(np.array(chances) < 0.05) <= 0.1
