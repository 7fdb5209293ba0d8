"""Placements are compared by the sign of their metric, and their captions count what differs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.synthetic import FD
from tread_lab.analysis.figures.gap_and_quality import gap_and_quality
from tread_lab.analysis.figures.placements import (
    Placements,
    best_route,
    commonest,
    rank_correlation,
)
from tread_lab.analysis.figures.style import holds_zero


def places(metric: str) -> Placements:
    """Three routes from block 0: below zero, around it, above it."""
    value, low, high = np.array([[-0.2, 0.1, 0.2], [-0.3, -0.1, 0.1], [-0.1, 0.3, 0.3]])
    start, end = np.array([[0, 0, 0], [2, 3, 4]])
    return Placements(metric, start, end, value, low, high, np.full(3, "completed"))


@pytest.mark.parametrize(("metric", "best"), [("gap/heldout", "0→2"), ("delta/is@10k", "0→4")])
def test_the_best_follows_the_sign_of_the_metric(metric: str, best: str) -> None:
    two_above = places(metric).take(np.array([0, 2, 2]))
    caption = best_route(two_above)
    assert caption.startswith(f"Best is {best}:")
    counts = "1 better, 2 worse." if best == "0→2" else "2 better, 1 worse."
    assert caption.endswith(counts)


def test_taking_keeps_every_column_together() -> None:
    some = places("gap/heldout").take(np.array([2, 0]))
    assert some.routes == [(0, 4), (0, 2)] and some.length.tolist() == [5, 3]
    assert some.value.tolist() == [0.2, -0.2] and some.best == 1


def test_of_equally_common_values_the_smallest_counts() -> None:
    assert commonest(np.array([8, 3, 8, 3, 5])) == 3
    assert commonest(np.array([], dtype=np.int64)) == 0


def test_an_interval_that_ends_at_zero_holds_it() -> None:
    low, high = np.array([-1.0, 0.0, 0.1, -2.0, np.nan]), np.array([0.0, 1.0, 0.2, -1.0, np.nan])
    assert holds_zero(low, high).tolist() == [True, True, False, False, False]


def test_a_rank_correlation_needs_three_points_and_some_spread() -> None:
    up = np.array([1.0, 2.0, 5.0])
    assert rank_correlation(up, -up)[0] == pytest.approx(-1)
    assert np.isnan(rank_correlation(up[:2], up[:2])).all()
    assert np.isnan(rank_correlation(up, np.ones(3))).all()


def test_a_route_without_one_of_two_numbers_is_no_pair(paper_frame: pd.DataFrame) -> None:
    frame = paper_frame.copy()
    frame.loc[frame["route"] == "2->8", FD] = np.nan
    pairs = gap_and_quality(frame, FD)
    assert len(pairs.gap.routes) == 11 and (2, 8) not in pairs.gap.routes
    assert pairs.gap.routes == pairs.quality.routes
    assert np.isfinite(pairs.gap.value).all() and np.isfinite(pairs.quality.value).all()
