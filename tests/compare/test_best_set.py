"""Cells are called worse as seldom by chance as is said; power and ranks agree with simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from tread_lab.compare.best_set import (
    power,
    quantile_to_one,
    range_quantile,
    ranks,
    residual_deviation,
    seeds_needed,
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
    assert residual_deviation(moved) == pytest.approx(residual_deviation(values))
    one, other = (worse_over_seeds(v, range_quantile) for v in (moved, values))
    assert np.array_equal(one, other)  # type: ignore[arg-type]


@pytest.mark.parametrize(("difference", "seeds"), [(2.0, 3), (2.0, 6)])
def test_power_is_how_often_simulation_separates_two_cells(difference: float, seeds: int) -> None:
    rng, rounds, apart = np.random.default_rng(9), 1500, np.full(10, 50.0)
    apart[:2] = 0, difference
    values = (layout(rng, apart, seeds=seeds) for _ in range(rounds))
    worse = (worse_over_seeds(v, range_quantile) for v in values)
    called = sum(bool(w[1]) for w in worse if w is not None) / rounds
    assert power(difference, 1.0, cells=10, seeds=seeds) == pytest.approx(called, abs=0.04)


def test_power_is_that_of_the_noncentral_t() -> None:
    expected = stats.nct.sf(range_quantile(10, 18), 18, 2.0 / (0.5 * np.sqrt(2 / 3)))
    assert power(2.0, 0.5, cells=10, seeds=3) == pytest.approx(expected, abs=1e-8)


def test_seeds_needed_is_the_least_with_that_power() -> None:
    n = seeds_needed(1.0, 1.0, cells=16)
    assert n is not None and power(1.0, 1.0, cells=16, seeds=n) >= 0.8
    assert power(1.0, 1.0, cells=16, seeds=n - 1) < 0.8
    assert seeds_needed(1.0, 0.0, cells=16) == 2 and power(1.0, 1e-9, cells=10, seeds=3) == 1.0
    most = optimize.brentq(lambda x: power(x, 1.0, cells=2, seeds=200) - 0.8, 0.2, 0.4)
    assert seeds_needed(most * 1.0001, 1.0, cells=2) == 200
    assert seeds_needed(most * 0.9999, 1.0, cells=2) is None


def test_ranks_are_firm_where_cells_are_far_apart() -> None:
    far = ranks(layout(np.random.default_rng(10), 20.0 * np.arange(6), seeds=3))
    assert (far.low_K == far.high_K).all() and list(far.low_K) == [1, 2, 3, 4, 5, 6]
    assert far.first_K[0] == 1.0
    near = ranks(layout(np.random.default_rng(11), np.zeros(6), seeds=3))
    assert (near.high_K - near.low_K >= 2).all()
    assert near.first_K.sum() == pytest.approx(1.0)


def test_resampled_ranks_draw_residuals_at_their_unbiased_size() -> None:
    """Residuals of 1 are drawn as 2, so that four draws can undo a lead of 3 together."""
    order = ranks(np.array([[0.0, 1.0], [0.0, 5.0]]))
    assert order.first_K[1] == pytest.approx(1 / 16, abs=0.015)
    few = ranks(np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]), resamples=3)
    assert sorted(few.first_K.round(3)) == [0.333, 0.667]  # so both cells have both ranks
    assert (few.low_K.tolist(), few.high_K.tolist()) == ([1, 1], [2, 2])


def test_ranks_are_of_means_and_the_same_each_time() -> None:
    values = layout(np.random.default_rng(12), np.array([0.0, 0.5, 1.0]), seeds=4)
    first, again, other = ranks(values), ranks(values), ranks(values, seed=1)
    assert first.first_K.tolist() == again.first_K.tolist() != other.first_K.tolist()
    # Means of 0.5 and 1, medians of 0 and 1: the second cell is first by its mean.
    skewed = np.array([[0.0, 0.9], [0.0, 0.9], [0.0, 0.9], [0.0, 0.9], [9.0, 0.9]])
    assert ranks(skewed).first_K[1] > 0.6


def test_the_residual_deviation_is_of_what_cells_and_seeds_leave() -> None:
    values = np.array([[0.0, 1.0], [0.0, 5.0]])  # residuals 1, -1, -1, 1; one degree of freedom
    assert residual_deviation(values) == 2.0
    wider = np.array([[0.0, 1.0, 5.0], [0.0, 5.0, 1.0], [0.0, 0.0, 0.0]])  # squares: 20
    assert residual_deviation(wider) == pytest.approx(np.sqrt(20 / 4))


@pytest.mark.parametrize("lead", [0.7, 0.9, 1.1])
def test_ranks_hold_a_cell_in_95_of_100_resamples(lead: float) -> None:
    values = np.random.default_rng(14).normal(size=(6, 4)) + lead * np.arange(4.0)
    order = ranks(values)
    assert (order.first_K * 4000 % 1 == 0).all() and (order.first_K * 400 % 1 != 0).any()
    for k in range(4):  # the best rank leaves out a first place in 1 of 40 resamples or fewer
        assert (order.low_K[k] == 1) == (order.first_K[k] > 0.025)
