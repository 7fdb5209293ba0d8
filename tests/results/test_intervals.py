"""Half widths are those of the t tables; the share that pairing keeps counts both variances."""

from __future__ import annotations

import numpy as np
import pytest

from tread_lab.results.intervals import half_width, pairing_kept


@pytest.mark.parametrize(("n", "tabled"), [(2, 12.706), (3, 4.303), (10, 2.262), (61, 2.000)])
def test_half_widths_are_those_of_the_t_tables(n: int, tabled: float) -> None:
    assert half_width(np.sqrt(n), n) == pytest.approx(tabled, abs=6e-4)


def test_one_value_has_no_half_width() -> None:
    assert np.isnan(half_width(np.array([np.nan, np.nan]), np.array([0, 1]))).all()


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_pairing_keeps_one_minus_rho_of_the_variance_over_seeds(rho: float) -> None:
    rng, seeds = np.random.default_rng(3), 20_000
    shared = np.sqrt(rho) * rng.normal(size=seeds)
    trial, baseline = (shared + np.sqrt(1 - rho) * rng.normal(size=seeds) for _ in range(2))
    assert pairing_kept(trial, baseline) == pytest.approx(1 - rho, rel=0.05)


def test_pairing_is_judged_by_both_variances_however_unequal() -> None:
    baseline, trial = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])  # variances 1 and 4
    assert pairing_kept(trial, baseline) == pytest.approx(1 / 5)
    assert pairing_kept(baseline, trial) == pytest.approx(1 / 5)
    constant = np.ones(3)
    assert pairing_kept(constant, constant) == 0.0
