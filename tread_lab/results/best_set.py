"""Which cells are best or not distinguishable from the best.

The model is y_sk = seed_s + cell_k + e_sk: cells are compared within seeds (all share draws and
baseline). Residuals of long routes vary several times as much as those of short ones, so each cell
has its own variance, and each pair Welch's degrees of freedom (Games and Howell 1976). Lower is
better throughout.
"""

# S seeds, K cells

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from tread_lab.results.intervals import CONFIDENCE

Array = NDArray[np.float64]
Quantile = Callable[[int, int], float]  # of the largest difference of cells, by degrees of freedom
_NODES = 80


def worse_over_seeds(
    values_SK: Array, quantile: Quantile, *, cells: int
) -> NDArray[np.bool_] | None:
    """Return which cells are worse than the first, at 95% for all of them together.

    A value that is absent is NaN; a difference is over the seeds that both cells have. A cell of
    one seed is not told apart. The result is `None` where no two cells share two seeds.

    Args:
        quantile: `range_quantile` where the same values chose the first cell, `quantile_to_one`
            where it was known before.
        cells: size of the family, at least K: cells that were started and have no values count.
    """
    known_SK = np.isfinite(values_SK)
    if (known_SK.sum(axis=1) > 1).sum() < 2:
        return None
    apart_SK = values_SK - values_SK[:, :1]
    common_K = np.isfinite(apart_SK).sum(axis=0)
    apart_K = np.nansum(apart_SK, axis=0) / np.maximum(common_K, 1)
    variance_K = _variances(values_SK)
    squares_K = variance_K**2 / np.maximum(known_SK.sum(axis=0) - 1, 1)
    both_K, squares_K = variance_K + variance_K[0], squares_K + squares_K[0]
    freedom_K = np.divide(both_K**2, squares_K, out=np.ones(len(both_K)), where=squares_K > 0)
    most_K = (common_K - 1) * (len(both_K) - 1)  # of two cells, those of their differences
    freedom_K = np.clip(freedom_K, 1, np.maximum(most_K, 1)).astype(int)
    limit_K = np.array([quantile(cells, freedom) for freedom in freedom_K.tolist()])
    error_K = np.sqrt(both_K / np.maximum(common_K, 1))
    return np.asarray((common_K > 1) & (apart_K > limit_K * error_K))


def widening(cells: int, n: int) -> float:
    """Return how much wider intervals over n images are that hold for all pairs of cells."""
    return range_quantile(cells, n - 1) / range_quantile(2, n - 1)


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


@functools.lru_cache(maxsize=4096)
def range_quantile(cells: int, freedom: int) -> float:
    """d with P(max_jk (Z_j - Z_k) / (sqrt(2) s) <= d) = 95%; all pairs of cells, Tukey's.

    Given the least of the Z_k, the others are normal above it; its distribution and that of s^2,
    chi-square / freedom, by quadrature. For two cells d is the quantile of a two-sided t-test.
    """
    at, share = np.polynomial.legendre.leggauss(_NODES)
    at, share = (at + 1) / 2, share / 2
    scale = np.sqrt(2 * gammaincinv(freedom / 2, at) / freedom)
    below = -np.expm1(np.log1p(-at) / cells)
    least = ndtri(below)

    def miss(d: float) -> float:
        inner = (ndtr(np.sqrt(2) * d * scale[:, None] + least) - below) / (1 - below)
        return float(share @ (inner ** (cells - 1) @ share) - CONFIDENCE)

    return _root(miss, 1000.0)


def quantile_to_one(cells: int, freedom: int) -> float:
    """d for the differences of all cells to the first one: Bonferroni's, however they correlate.

    For two cells d is the quantile of a one-sided t-test.
    """
    return float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / (cells - 1)))


def _root(function: Callable[[float], float], most: float) -> float:
    """Return where a rising function is 0 between 0 and `most`."""
    from scipy.optimize import brentq  # few commands ask for a quantile, and its import takes long

    return float(brentq(function, 0.0, most, xtol=1e-6))
