"""A smooth map of placements: what the gaps of neighbours say about each cell, measured or not.

The gap of cell k in seed s is y_sk = f(x_k) + u_s + v_s c_k + e_sk. f is a Gaussian process over
x = (start, end, rate) with a mean linear in c, the share of all tokens' blocks that a route skips;
u_s and v_s are the level and the slope that the cells of a seed share, since they share a baseline
and its draws; the noise e_sk grows as exp(kappa c). All scales are relative to the noise at c = 1/4
whose variance has the prior 1 / sigma^2 (Rasmussen and Williams 2006, chapter 2); parameters are
averaged over.
"""

# S seeds, K cells, N draws of the parameters, M draws of the map

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve
from threadpoolctl import threadpool_limits

from tread_lab.results.intervals import CONFIDENCE

Array = NDArray[np.float64]
Measured = tuple[NDArray[np.intp], Array]  # n seeds: their k cells, and their gaps, [n, k]

FEWEST = 6  # measured cells
MOST = 400  # cells: the time grows with the third power
N, M = 160, 4000
ROUNDS, MOST_ROUNDS = 3, 8
ENOUGH = 50  # effective draws of a round, the squared sum of weights over the sum of squares
TAIL = 5  # degrees of freedom of the draws of later rounds
MIDDLE = 0.25  # the share c at which scales are those of the noise
ROUNDING = 1e-7  # of the variance, by which covariances stay positive definite
LEVEL, SLOPE = 10.0, 20.0  # deviations of the linear mean: wide, so that the data decide

# Means and deviations of the logarithms of: the deviation of f about its mean; its length scales in
# start and end (shares of the depth) and rate; the deviations of u and v. Last, kappa itself.
PRIOR = np.array(
    [(0.0, 1.0), (-1.4, 0.5), (-1.4, 0.5), (-1.2, 0.5), (0.0, 0.7), (0.7, 0.7), (3.0, 1.0)]
)


@dataclass(frozen=True)
class _Posterior:
    """Of f under one choice of the parameters: Student's t with `values` degrees of freedom."""

    mean_K: Array
    covariance_KK: Array
    values: int
    log_likelihood: float


def smooth_map(places_K3: Array, gaps_SK: Array, *, depth: int) -> pd.DataFrame:
    """Return the posterior map of gaps, one row per placement.

    Columns: `mean`, `deviation`, `low`, `high` (95%) of f; `best`, the probability that the cell is
    the lowest of the measured ones, and `best_of_all`, of all. The map is the same whenever it is
    computed from the same gaps.

    Args:
        places_K3: first block, last block (both inclusive) and selection rate.
        gaps_SK: gap of each seed; NaN if not measured.
        depth: blocks of the network.

    Raises:
        ValueError: fewer than `FEWEST` measured or more than `MOST` requested placements.
    """
    measured_K = np.isfinite(gaps_SK).any(axis=0)
    if measured_K.sum() < FEWEST or len(places_K3) > MOST:
        asked = f"{measured_K.sum()} measured of {len(places_K3)}"
        raise ValueError(f"must be {FEWEST} measured of at most {MOST} cells, got {asked}")
    with threadpool_limits(limits=1):  # small matrices: threads wait for each other beside a sweep
        mean_K, map_MK = _fitted(places_K3, gaps_SK, depth, np.random.default_rng(0))
    low_K, high_K = np.quantile(map_MK, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    among = np.where(measured_K, map_MK, np.inf)
    return pd.DataFrame(
        {
            "mean": mean_K,
            "deviation": map_MK.std(axis=0),
            "low": low_K,
            "high": high_K,
            "best": np.bincount(among.argmin(axis=1), minlength=len(places_K3)) / M,
            "best_of_all": np.bincount(map_MK.argmin(axis=1), minlength=len(places_K3)) / M,
        }
    )


def _fitted(
    places_K3: Array, gaps_SK: Array, depth: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the posterior mean of f and draws of it, [M, K], by importance sampling.

    The parameters are drawn from the prior, then from Student's t about the weighted draws: twice,
    and again until a round has enough effective draws.
    """
    (middle, spread), measured = PRIOR.T, _alike(gaps_SK)
    centre, covariance = middle, np.diag(spread**2)
    weight_N = np.ones(1)
    for turn in range(MOST_ROUNDS):
        if turn >= ROUNDS and 1 / (weight_N**2).sum() > ENOUGH:
            break
        shape_N7 = rng.standard_normal((N, len(PRIOR)))
        if turn:
            shape_N7 /= np.sqrt(rng.chisquare(TAIL, (N, 1)) / TAIL)
        squares_N = (shape_N7**2).sum(axis=1)
        drawn_N7 = centre + shape_N7 @ np.linalg.cholesky(covariance).T
        proposed_N = -squares_N / 2
        if turn:
            proposed_N = -(TAIL + len(PRIOR)) / 2 * np.log1p(squares_N / TAIL)
        found = [_posterior(at, places_K3, measured, depth) for at in drawn_N7]
        prior_N = -(((drawn_N7 - middle) / spread) ** 2).sum(axis=1) / 2
        log_N = np.array([one.log_likelihood for one in found]) + prior_N - proposed_N
        weight_N = np.exp(log_N - log_N.max())
        weight_N /= weight_N.sum()
        centre = weight_N @ drawn_N7
        away_N7 = drawn_N7 - centre
        covariance = (away_N7.T * weight_N) @ away_N7 + np.diag((spread / 10) ** 2)
    mean_K = weight_N @ np.array([one.mean_K for one in found])
    return mean_K, _draws(found, rng.multinomial(M, weight_N), rng)


def skipped(places_K3: Array, depth: int) -> Array:
    """Return the share c of token-blocks that each placement skips."""
    start_K, end_K, rate_K = places_K3.T
    return np.asarray(rate_K * (end_K - start_K + 1) / depth)


def _alike(gaps_SK: Array) -> list[Measured]:
    """Return the cells that some seeds have measured, with the gaps of these seeds there."""
    done_SK = np.isfinite(gaps_SK)
    patterns, of_S = np.unique(done_SK, axis=0, return_inverse=True)
    return [(done.nonzero()[0], gaps_SK[of_S == k][:, done]) for k, done in enumerate(patterns)]


def _posterior(
    parameters: Array, places_K3: Array, measured: Sequence[Measured], depth: int
) -> _Posterior:
    """Return f given one choice of the parameters, and how likely the gaps are under it."""
    scale, *lengths, level, slope = np.exp(parameters[:6])
    away_K = skipped(places_K3, depth) - MIDDLE
    at_K3 = places_K3 / (depth, depth, 1) / lengths
    distance_KK = np.sqrt(3 * ((at_K3[:, None] - at_K3) ** 2).sum(axis=-1))
    along_KK = np.outer(away_K, away_K)
    prior_KK = scale**2 * (1 + distance_KK) * np.exp(-distance_KK)  # Matern's, 3/2
    prior_KK += LEVEL**2 + SLOPE**2 * along_KK
    noise_KK = level**2 + slope**2 * along_KK + np.diag(np.exp(2 * parameters[6] * away_K))
    K, values, square, log_volume = len(places_K3), 0, 0.0, 0.0
    precision_KK, weighed_K = np.zeros((K, K)), np.zeros(K)
    for own, gaps_nk in measured:
        root = np.linalg.cholesky(noise_KK[np.ix_(own, own)])
        inverse_kk = cho_solve((root, True), np.eye(len(own)))
        precision_KK[np.ix_(own, own)] += len(gaps_nk) * inverse_kk
        solved_nk = gaps_nk @ inverse_kk
        weighed_K[own] += solved_nk.sum(axis=0)
        square += float((gaps_nk * solved_nk).sum())
        log_volume += 2 * len(gaps_nk) * float(np.log(np.diag(root)).sum())
        values += gaps_nk.size
    updated_KK = np.eye(K) + prior_KK @ precision_KK
    covariance_KK = solve(updated_KK, prior_KK)
    mean_K = covariance_KK @ weighed_K
    square -= float(weighed_K @ mean_K)
    log_volume += float(np.linalg.slogdet(updated_KK)[1])
    likelihood = -log_volume / 2 - values / 2 * np.log(square)
    return _Posterior(mean_K, covariance_KK * square / values, values, float(likelihood))


def _draws(found: list[_Posterior], count_N: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """Return draws of f, [M, K], so many of each posterior."""
    drawn = []
    for one, count in zip(found, count_N):
        if count:
            variance = np.trace(one.covariance_KK) / len(one.mean_K)
            steady_KK = one.covariance_KK + ROUNDING * variance * np.eye(len(one.mean_K))
            normal = rng.standard_normal((count, len(one.mean_K)))
            normal = normal @ np.linalg.cholesky((steady_KK + steady_KK.T) / 2).T
            spread = np.sqrt(one.values / rng.chisquare(one.values, (count, 1)))
            drawn.append(one.mean_K + normal * spread)
    return np.concatenate(drawn)
