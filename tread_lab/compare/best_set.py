"""Which cells are best or not distinguishable from the best.

The model is the additive two-way layout y_sk = seed_s + cell_k + e_sk: cells are compared within
seeds (all share draws and baseline), and the residual deviation is pooled over all of them, which
is what makes three seeds worth something. Lower is better throughout.
"""

# S seeds, K cells

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from tread_lab.compare.intervals import CONFIDENCE

Array = NDArray[np.float64]
Quantile = Callable[[int, int], float]  # of the largest difference of cells, by degrees of freedom
_NODES = 80


def worse_over_seeds(values_SK: Array, quantile: Quantile) -> NDArray[np.bool_] | None:
    """Return which cells are worse than the first, at 95% for all of them together.

    A value that is absent is NaN; a difference is over the seeds that both cells have. The result
    is `None` where no two cells share two seeds, so that nothing is left to estimate the deviation
    from.

    Args:
        quantile: `range_quantile` where the same values chose the first cell, `quantile_to_one`
            where it was known before.
    """
    deviation, freedom = _pooled(values_SK)
    if not freedom:
        return None
    apart_SK = values_SK - values_SK[:, :1]
    common_K = np.isfinite(apart_SK).sum(axis=0)
    error_K = deviation * np.sqrt(2 / np.maximum(common_K, 1))
    apart_K = np.nansum(apart_SK, axis=0) / np.maximum(common_K, 1)
    return np.asarray(apart_K > quantile(values_SK.shape[1], freedom) * error_K)


def widening(cells: int, n: int, quantile: Quantile) -> float:
    """Return how much wider intervals over n images are that hold for all cells together.

    It is 1 for two cells. The quantile is as for `worse_over_seeds`.
    """
    return quantile(cells, n - 1) / quantile(2, n - 1)


def _pooled(values_SK: Array) -> tuple[float, int]:
    """Return the residual deviation and its degrees of freedom where values may be absent (NaN)."""
    known_SK = np.isfinite(values_SK)
    count_K = np.maximum(known_SK.sum(axis=0), 1)

    def centred(values_SK: Array) -> Array:
        own_SK = np.where(known_SK, values_SK, 0.0)
        return np.where(known_SK, own_SK - own_SK.sum(axis=0) / count_K, 0.0)

    within_SK = centred(values_SK)
    normal_SS = np.diag(known_SK.sum(axis=1)) - (known_SK / count_K) @ known_SK.T
    seeds_S, _, rank, _ = np.linalg.lstsq(normal_SS, within_SK.sum(axis=1))
    freedom = int(known_SK.sum() - known_SK.any(axis=0).sum() - rank)
    left_SK = within_SK - centred(np.broadcast_to(seeds_S[:, None], known_SK.shape))
    return float(np.sqrt((left_SK**2).sum() / max(freedom, 1))), freedom


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

    For two cells d is the quantile of a two-sided t-test.
    """
    return float(stdtrit(freedom, 1 - (1 - CONFIDENCE) / 2 / (cells - 1)))


def _root(function: Callable[[float], float], most: float) -> float:
    """Return where a rising function is 0 between 0 and `most`."""
    from scipy.optimize import brentq  # few commands ask for a quantile, and its import takes long

    return float(brentq(function, 0.0, most, xtol=1e-6))
