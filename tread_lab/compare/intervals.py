"""Intervals of a gap over seeds and images together: from variance components, and resampled."""

# S seeds, M images, R resamples

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from tread_lab.specs.errors import UserError

Array = NDArray[np.float64]
CONFIDENCE = 0.95
RESAMPLES = 4000
FEWEST_CROSSED = 3
FEWEST_SEEDS = 6  # fewer give a resampled mean too few distinct values


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its 95% interval."""

    mean: float
    low: float
    high: float


def crossed_interval(gap_SM: Array) -> Interval:
    """The mean gap over new seeds **and** new images, from three seeds on.

    Raises:
        UserError: one seed or two, whose spread says nothing of other seeds.
    """
    _check(gap_SM, fewest=FEWEST_CROSSED)
    mean, (error, freedom) = float(gap_SM.mean()), _error(gap_SM)
    half = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return Interval(mean, mean - half, mean + half)


def bootstrap_interval(gap_SM: Array, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The same with the shape of resampled means, skewed where the gaps are.

    Seeds and images are drawn anew, each with replacement (the pigeonhole bootstrap: Owen, Annals
    of Applied Statistics 1:386, 2007). That counts their interaction three times and is blind to
    how few seeds there are, so the resampled means are scaled to the standard error of
    `crossed_interval`, and their percentiles widened from normal to t levels (Hesterberg, American
    Statistician 69:371, 2015). One seed alone gives an interval over images.

    Raises:
        UserError: 2 to 5 seeds, whose resamples have too few distinct values: `crossed_interval`.
    """
    S, M = _check(gap_SM, fewest=1)
    if 1 < S < FEWEST_SEEDS:
        raise UserError(f"resampling {S} seeds says little; it needs {FEWEST_SEEDS}, or just one")
    rng = np.random.default_rng(seed)
    draws_RM = rng.multinomial(M, np.full(M, 1 / M), size=resamples) / M
    draws_RS = rng.multinomial(S, np.full(S, 1 / S), size=resamples) / S
    mean, means_R = float(gap_SM.mean()), np.einsum("rs,rs->r", draws_RS, draws_RM @ gap_SM.T)
    error, freedom = _error(gap_SM)
    tail = ndtr(stdtrit(freedom, (1 - CONFIDENCE) / 2))
    scale = error / means_R.std() if means_R.std() > 0 else 0.0
    low, high = mean + scale * (np.quantile(means_R, [tail, 1 - tail]) - mean)
    return Interval(mean, float(low), float(high))


def _error(gap_SM: Array) -> tuple[float, float]:
    """Standard error of the mean gap and its degrees of freedom.

    Seeds and images are crossed random effects: Var = (MS_S + MS_M - MS_SM) / SM of the two-way
    layout, degrees of freedom after Satterthwaite (Biometrics Bulletin 2:110, 1946).
    """
    S, M = gap_SM.shape
    if S == 1:
        return float(gap_SM.std(ddof=1) / np.sqrt(M)), M - 1
    mean, rows, columns = gap_SM.mean(), gap_SM.mean(axis=1), gap_SM.mean(axis=0)
    residual = gap_SM - rows[:, None] - columns[None, :] + mean
    seeds, images = float(M * rows.var(ddof=1)), float(S * columns.var(ddof=1))
    both = float((residual**2).sum()) / ((S - 1) * (M - 1))
    spread = max(seeds + images - both, seeds, images)
    loose = seeds**2 / (S - 1) + images**2 / (M - 1) + both**2 / ((S - 1) * (M - 1))
    freedom = max(spread**2 / loose, 1.0) if loose > 0 else 1.0
    return float(np.sqrt(spread / (S * M))), freedom


def pairing_kept(trial_S: Array, baseline_S: Array) -> float:
    """Variance over seeds of the paired gap, over that of an unpaired one: 0.1 is ten times less.

    Args:
        trial_S: a run's values, seed by seed; [S, K] for several cells, which are averaged.
        baseline_S: their baseline's values of the same seeds.
    """
    baseline = baseline_S if trial_S.ndim == baseline_S.ndim else baseline_S[:, None]
    apart = trial_S.var(axis=0, ddof=1) + baseline.var(axis=0, ddof=1)
    paired = (trial_S - baseline).var(axis=0, ddof=1)
    return float(paired.mean() / apart.mean()) if apart.mean() > 0 else 0.0


def _check(gap_SM: Array, *, fewest: int) -> tuple[int, int]:
    if gap_SM.ndim != 2 or gap_SM.shape[0] < fewest or gap_SM.shape[1] < 2:
        raise UserError(f"gaps of seeds x images expected, at least {fewest} x 2: {gap_SM.shape}")
    return gap_SM.shape[0], gap_SM.shape[1]
