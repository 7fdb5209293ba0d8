"""Cells are called worse as seldom by chance as is said."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tread_lab.results.intervals import (
    largest,
    to_one,
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
        (largest(2, 3), T975),
        (to_one(2, np.array(2)), stats.t.ppf(0.95, 2)),
        (largest(10, 300) * np.sqrt(2), stats.studentized_range.ppf(0.95, 10, 261)),
        (widening(2, 32), 1.0),
    ],
)
def test_limits_are_tabled_where_variances_are_known(found: float, expected: float) -> None:
    assert found == pytest.approx(expected, rel=0.02)


# Deviations of residuals of 16 routes: those of long ones are 5 times as large, as in a real sweep.
UNEQUAL = np.array([2.9, 3, 3, 4, 4, 5, 6, 6, 6, 7, 8, 8, 10, 12, 15, 15])


def errors_and_found(seeds: int, noise: np.ndarray, absent: float = 0.0) -> tuple[float, float]:
    """The share of sweeps that call one of equal cells worse, and that call a far one worse."""
    rng, rounds, wrong, found = np.random.default_rng(seeds), 2000, 0, 0
    cells = np.repeat([0.0, 500.0], [len(noise), 1])
    for _ in range(rounds):
        values = layout(rng, cells, seeds=seeds, noise=np.append(noise, noise.mean()))
        values[2:, :-1][rng.random((seeds - 2, len(noise))) < absent] = np.nan
        order = np.argsort(np.nanmean(values - values[:, -1:], axis=0))  # over the seeds that ran
        worse = worse_over_seeds(values[:, order], chosen=True, cells=len(cells))
        assert worse is not None
        wrong, found = wrong + worse[:-1].any(), found + worse[-1]
    return wrong / rounds, found / rounds


@pytest.mark.parametrize(("seeds", "absent"), [(2, 0.0), (3, 0.0), (3, 0.3), (4, 0.0)])
@pytest.mark.parametrize("noise", [UNEQUAL, np.ones(16), np.ones(3)])
def test_best_set_holds_under_unequal_variances(
    seeds: int, absent: float, noise: np.ndarray
) -> None:
    wrong, found = errors_and_found(seeds, noise, absent)
    assert wrong <= 0.07 and (found > 0.9 or seeds == 2)


def test_two_cells_are_compared_by_the_paired_t_test() -> None:
    rng, calls = np.random.default_rng(0), []
    for _ in range(2000):
        values = layout(rng, np.zeros(2), seeds=4, noise=np.array([1.0, 9.0]))
        values = values[:, np.argsort(values.mean(axis=0))]
        worse = worse_over_seeds(values, chosen=True, cells=2)
        assert worse is not None
        p = stats.ttest_rel(*values.T).pvalue
        calls.append((worse[1], p < 0.05))
    called, expected = np.array(calls).T
    assert (called == expected).all() and 0.03 < called.mean() < 0.07


def test_cells_without_a_result_count() -> None:
    values = np.array([[0.0, 1.0, 3.0], [0.1, 0.0, 3.1], [0.0, 1.0, 2.8]])
    few, many = (worse_over_seeds(values, chosen=True, cells=n) for n in (3, 3000))
    assert few is not None and few.tolist() == [False, False, True]
    assert many is not None and many.tolist() == [False] * 3


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("noise", [1.0, np.append(3.0, UNEQUAL)], ids=["equal", "unequal"])
def test_cells_as_good_as_dense_are_rarely_called_better(
    seeds: int, noise: float | np.ndarray
) -> None:
    rng, rounds, wrong = np.random.default_rng(seeds), 2000, 0
    for _ in range(rounds):  # dense is the first column
        values = -layout(rng, np.zeros(17), seeds=seeds, noise=noise)
        better = worse_over_seeds(values, chosen=False, cells=17)
        assert better is not None
        wrong += better.any()
    assert wrong / rounds <= 0.07


def test_cells_without_a_common_seed_are_not_told_apart() -> None:
    nan = np.nan
    assert worse_over_seeds(np.array([[0.0, 9.0]]), chosen=True, cells=2) is None
    apart = np.array([[0.0, nan], [nan, 9.0]])
    assert worse_over_seeds(apart, chosen=True, cells=2) is None
    values = np.array([[0.0, 0.0, nan], [0.1, 0.1, nan], [nan, nan, 99.0]])
    worse = worse_over_seeds(values, chosen=True, cells=3)
    assert worse is not None and worse.tolist() == [False] * 3


def test_the_shift_of_a_seed_changes_nothing() -> None:
    values = layout(np.random.default_rng(8), np.arange(5.0), seeds=3)
    moved = values + np.array([[0.0], [100.0], [-7.0]])
    one, other = (worse_over_seeds(v, chosen=True, cells=5) for v in (moved, values))
    assert np.array_equal(one, other)  # type: ignore[arg-type]
