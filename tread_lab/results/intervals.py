"""Intervals at 95%, which cells are not distinguishable from the best, and what seeds can show.

The model is y_sk = seed_s + cell_k + e_sk: cells are compared within seeds (all share draws and
baseline). Residuals of long routes vary several times as much as those of short ones, so each cell
has its own variance. The limit of the largest difference to the best, in its standard errors, is
simulated for cells of equal means and variances: by Tukey's with Welch's degrees of freedom (Games
and Howell 1976) 78 cells of three or four seeds err twice as often as they say. Lower is better.
"""

# S seeds, K cells, B simulated sweeps

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import nctdtrinc, stdtrit

Array = NDArray[np.float64]
CONFIDENCE, POWER = 0.95, 0.8
SWEEPS = 5_000  # simulated
NUMBERS = 1 << 22  # drawn at once


def t_interval(values: Array) -> tuple[float, float, float]:
    """Return the mean of two or more values and the ends of its t-interval."""
    mean = float(values.mean())
    half = float(half_width(values.std(ddof=1), len(values)))
    return mean, mean - half, mean + half


def half_width(deviation: ArrayLike, n: ArrayLike) -> Array:
    """Return half the width of the t-interval of a mean: t(n - 1) deviation / sqrt(n).

    Args:
        deviation: standard deviations with divisor n - 1; NaN for n below 2, as is the result.
        n: number of values of each deviation.
    """
    n = np.maximum(n, 2)
    return np.asarray(stdtrit(n - 1, (1 + CONFIDENCE) / 2) * deviation / np.sqrt(n))


def pairing_kept(trial_S: Array, baseline_S: Array) -> float:
    """Return the variance of the paired difference relative to an unpaired one.

    At equal variances 1 - rho, with the correlation rho; 0.1 is a tenfold reduction. S can be
    images instead of seeds.

    Args:
        trial_S: values of a run.
        baseline_S: values of its baseline for the same seeds or images.
    """
    apart = trial_S.var(ddof=1) + baseline_S.var(ddof=1)
    return float((trial_S - baseline_S).var(ddof=1) / apart) if apart > 0 else 0.0


def worse_over_seeds(values_SK: Array, *, chosen: bool, cells: int) -> NDArray[np.bool_] | None:
    """Return which cells are worse than the first, at 95% for all of them together.

    Missing values are NaN; differences use common seeds. Cells with one seed are never worse.
    Returns `None` if no two cells share two seeds.

    Args:
        chosen: whether the first cell was chosen by these values, not in advance.
        cells: size of the family, at least K, including started cells without values.
    """
    known_SK = np.isfinite(values_SK)
    if (known_SK.sum(axis=1) > 1).sum() < 2:
        return None
    apart_SK = values_SK - values_SK[:, :1]
    common_K = np.isfinite(apart_SK).sum(axis=0)
    apart_K = np.nansum(apart_SK, axis=0) / np.maximum(common_K, 1)
    variance_K = _variances(values_SK)
    both_K = variance_K + variance_K[0]
    if chosen:
        limit_K = np.array([largest(cells, max(n, 2)) for n in common_K.tolist()])
    else:
        squares_K = variance_K**2 / np.maximum(known_SK.sum(axis=0) - 1, 1)
        squares_K += squares_K[0]
        freedom_K = np.divide(both_K**2, squares_K, out=np.ones(len(both_K)), where=squares_K > 0)
        most_K = (common_K - 1) * (len(both_K) - 1)  # of two cells, those of their differences
        limit_K = to_one(cells, np.clip(freedom_K, 1, np.maximum(most_K, 1)).astype(int))
    error_K = np.sqrt(both_K / np.maximum(common_K, 1))
    return np.asarray((common_K > 1) & (apart_K > limit_K * error_K))


def to_one(cells: int, freedom_K: NDArray[np.int64]) -> Array:
    """Return d for the differences of all cells to a fixed one: Bonferroni, valid for any
    correlation; Welch's degrees of freedom, rounded down."""
    return np.asarray(stdtrit(freedom_K, 1 - (1 - CONFIDENCE) / (cells - 1)))


def widening(cells: int, n: int) -> float:
    """Return the factor by which simultaneous intervals over n images are wider."""
    return largest(cells, n, paired=True) / largest(2, n, paired=True)


@functools.lru_cache(maxsize=4096)
def largest(cells: int, n: int, *, paired: bool = False) -> float:
    """Return d with P(max_k (mean_k - mean_1) / error_k <= d) = 95%, simulated.

    The first mean is the lowest of cells with equal means and variances over n seeds. For two cells
    d is the quantile of the paired two-sided t-test; for more it is at least that.

    Args:
        paired: whether errors come from the differences, not from both cells.
    """
    of_two = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2))
    if cells == 2:
        return of_two
    rng, found, part = np.random.default_rng(0), list[Array](), min(NUMBERS // cells + 1, SWEEPS)
    for _ in range(0, SWEEPS, part):
        mean_BK = np.sort(rng.normal(size=(part, cells)))
        variance_BK = rng.chisquare(n - 1, mean_BK.shape) / (n - 1)
        error_BK = np.sqrt(variance_BK + (variance_BK if paired else variance_BK[:, :1]))
        found.append(((mean_BK - mean_BK[:, :1]) / error_BK).max(axis=1))
    return max(of_two, float(np.quantile(np.concatenate(found), CONFIDENCE)))


def _variances(values_SK: Array) -> Array:
    """Return the variance of each cell's values, NaN for a cell of one seed.

    It is what cells and seeds leave, over the cell's seeds but one. The effects of seeds, which are
    taken off, have a part of it: on average 1/K where variances are equal.
    """
    known_SK = np.isfinite(values_SK)
    count_K = known_SK.sum(axis=0)

    def centred(values_SK: Array) -> Array:
        own_SK = np.where(known_SK, values_SK, 0.0)
        return np.where(known_SK, own_SK - own_SK.sum(axis=0) / np.maximum(count_K, 1), 0.0)

    within_SK = centred(values_SK)
    normal_SS = np.diag(known_SK.sum(axis=1)) - (known_SK / np.maximum(count_K, 1)) @ known_SK.T
    seeds_S, *_ = np.linalg.lstsq(normal_SS, within_SK.sum(axis=1))
    left_SK = within_SK - centred(np.broadcast_to(seeds_S[:, None], known_SK.shape))
    K = max((count_K > 0).sum(), 2)
    variance_K = (left_SK**2).sum(axis=0) / np.maximum(count_K - 1, 1) * K / (K - 1)
    return np.where(count_K > 1, variance_K, np.nan)


def smallest_gap(deviation: float, n: int) -> float:
    """Return the difference that a two-sided t-test at 5% over n seeds detects with 80% power.

    Solves P(T > t(n - 1)) = 80% for the noncentrality of T.
    """
    limit = stdtrit(n - 1, (1 + CONFIDENCE) / 2)
    return float(nctdtrinc(n - 1, 1 - POWER, limit) * deviation / np.sqrt(n))
