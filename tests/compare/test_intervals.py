"""Intervals over seeds and images cover a known gap as often as they promise; pairing pays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tread_lab.compare.intervals import bootstrap_interval, crossed_interval, pairing_kept
from tread_lab.specs import UserError

GAP = 0.3


def gaps(rng: np.random.Generator, *, seeds: int, images: int = 64) -> np.ndarray:
    """Gaps whose seeds, images and their interaction vary, around a known one.

    One seed stands for one pair of runs, whose own effect belongs to what is asked about.
    """
    own = rng.normal(size=(1, images)) + rng.normal(size=(seeds, images))
    return GAP + own + (0.3 * rng.normal(size=(seeds, 1)) if seeds > 1 else 0.0)


def coverage(interval, *, seeds: int, rounds: int, **options: int) -> float:
    rng = np.random.default_rng(seeds)
    found = [interval(gaps(rng, seeds=seeds), **options) for _ in range(rounds)]
    return float(np.mean([i.low <= GAP <= i.high for i in found]))


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_crossed_intervals_cover_the_true_gap(seeds: int) -> None:
    assert 0.93 <= coverage(crossed_interval, seeds=seeds, rounds=2000) <= 0.97


@pytest.mark.parametrize("seeds", [1, 6, 12])
def test_resampled_intervals_cover_the_true_gap(seeds: int) -> None:
    assert 0.93 <= coverage(bootstrap_interval, seeds=seeds, rounds=800, resamples=500) <= 0.97


def test_without_images_to_vary_the_interval_is_the_t_interval_of_the_seeds() -> None:
    per_seed = np.array([0.1, 0.4, 0.2, 0.3])
    interval = crossed_interval(np.repeat(per_seed[:, None], 50, axis=1))
    reference = stats.ttest_1samp(per_seed, 0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high))


def test_skewed_gaps_have_a_skewed_interval() -> None:
    gap_SM = np.random.default_rng(0).gamma(0.3, size=(1, 40))
    interval = bootstrap_interval(gap_SM)
    assert interval.high - interval.mean > 1.1 * (interval.mean - interval.low)


def test_the_same_seed_gives_the_same_interval() -> None:
    gap_SM = gaps(np.random.default_rng(1), seeds=8)
    assert bootstrap_interval(gap_SM) == bootstrap_interval(gap_SM)
    assert bootstrap_interval(gap_SM, seed=1) != bootstrap_interval(gap_SM)


@pytest.mark.parametrize("seeds", [2, 5])
def test_too_few_seeds_are_not_resampled(seeds: int) -> None:
    with pytest.raises(UserError, match="needs 6"):
        bootstrap_interval(np.zeros((seeds, 8)))


def test_two_seeds_have_no_crossed_interval() -> None:
    with pytest.raises(UserError, match="at least 3"):
        crossed_interval(np.zeros((2, 8)))


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.99])
def test_pairing_keeps_one_minus_rho_of_the_variance_over_seeds(rho: float) -> None:
    rng, seeds = np.random.default_rng(3), 20_000
    shared = np.sqrt(rho) * rng.normal(size=seeds)
    trial, baseline = (shared + np.sqrt(1 - rho) * rng.normal(size=seeds) for _ in range(2))
    assert pairing_kept(trial, baseline) == pytest.approx(1 - rho, rel=0.05)
    assert pairing_kept(np.stack([trial, trial], 1), baseline) == pytest.approx(1 - rho, rel=0.05)
