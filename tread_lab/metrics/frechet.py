"""The Frechet distance of two Gaussians from their moments, such as published statistics."""

# N samples, D features

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean [D] and covariance [D, D] of a set of features."""

    mu: Floats
    sigma: Floats

    @staticmethod
    def of(features_ND: NDArray[np.floating]) -> Moments:
        """The moments of a feature matrix, unbiased (N - 1), in float64."""
        features_ND = features_ND.astype(np.float64)
        return Moments(features_ND.mean(axis=0), np.cov(features_ND, rowvar=False))


def frechet(a: Moments, b: Moments) -> float:
    """|mu_a - mu_b|^2 + tr(S_a + S_b - 2 (S_a S_b)^1/2) (Heusel et al. 2017, eq. 6).

    S_a S_b has the eigenvalues of S_a^1/2 S_b S_a^1/2, which is symmetric: real ones, and fewer
    samples than features do no harm.
    """
    values, vectors = np.linalg.eigh(a.sigma)
    root = vectors * np.sqrt(values.clip(min=0)) @ vectors.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ b.sigma @ root).clip(min=0)).sum()
    apart = a.mu - b.mu
    return float(apart @ apart + np.trace(a.sigma) + np.trace(b.sigma) - 2 * cross)
