"""Cells are called worse as seldom by chance as is said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tread_lab.compare.best_set import (
    quantile_to_one,
    range_quantile,
    widening,
    worse_over_seeds,
)


def layout(
    rng: np.random.Generator, cells: np.ndarray, *, seeds: int, noise: float | np.ndarray = 1.0
) -> np.ndarray:
    """Values of known cell means with large seed effects and residuals of deviation `noise`."""
    residuals = noise * rng.normal(size=(seeds, len(cells)))
    return 5 * rng.normal(size=(seeds, 1)) + cells + residuals


T975 = stats.t.ppf(0.975, 2)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (range_quantile(2, 2), T975),
        (range_quantile(3, 20) * np.sqrt(2), 3.58),  # tabled, as the next ones
        (range_quantile(10, 10) * np.sqrt(2), 5.6),
        (range_quantile(20, 120) * np.sqrt(2), 5.13),
        (quantile_to_one(2, 2), T975),
        (widening(2, 32, range_quantile), 1.0),
        (widening(2, 32, quantile_to_one), 1.0),
    ],
)
def test_quantiles_are_the_tabled_ones_and_those_of_the_t_test(
    found: float, expected: float
) -> None:
    assert found == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("seeds", "absent"), [(2, 0.0), (3, 0.3)])
def test_one_of_equal_cells_is_called_worse_in_5_of_100_sweeps(seeds: int, absent: float) -> None:
    rng, rounds, wrong, found = np.random.default_rng(seeds), 1500, 0, 0
    for _ in range(rounds):
        values = layout(rng, np.repeat([0.0, 9.0], [16, 1]), seeds=seeds)
        values[1:, :16][rng.random((seeds - 1, 16)) < absent] = np.nan
        own = values - values[:, 16:]  # a cell's seeds are those that ran
        worse = worse_over_seeds(values[:, np.argsort(np.nanmean(own, axis=0))], range_quantile)
        assert worse is not None
        wrong, found = wrong + worse[:16].any(), found + worse[16]
    assert wrong / rounds <= 0.07 and found / rounds > 0.9


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_best_of_cells_as_good_as_dense_is_rarely_called_better(seeds: int) -> None:
    rng, rounds, wrong, found = np.random.default_rng(seeds), 1500, 0, 0
    for _ in range(rounds):  # dense is the first column; the last cell is better
        values = -layout(rng, np.repeat([0.0, -9.0], [18, 1]), seeds=seeds)
        better = worse_over_seeds(values, quantile_to_one)
        assert better is not None
        wrong, found = wrong + better[1:18].any(), found + better[18]
    assert 0.01 <= wrong / rounds <= 0.035 and found / rounds > 0.99


def test_cells_without_a_common_seed_are_not_told_apart() -> None:
    nan = np.nan
    assert worse_over_seeds(np.array([[0.0, 9.0]]), range_quantile) is None
    assert worse_over_seeds(np.array([[0.0, nan], [nan, 9.0]]), range_quantile) is None
    values = np.array([[0.0, 0.0, nan], [0.1, 0.1, nan], [nan, nan, 99.0]])
    assert worse_over_seeds(values, range_quantile).tolist() == [False] * 3  # type: ignore[union-attr]


def test_the_shift_of_a_seed_changes_nothing() -> None:
    values = layout(np.random.default_rng(8), np.arange(5.0), seeds=3)
    moved = values + np.array([[0.0], [100.0], [-7.0]])
    one, other = (worse_over_seeds(v, range_quantile) for v in (moved, values))
    assert np.array_equal(one, other)  # type: ignore[arg-type]
