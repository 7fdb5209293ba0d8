"""The Frechet distance between two sets of features, from their moments, in float64."""

# D features

from __future__ import annotations

import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor]  # mean [D], covariance [D, D]


def frechet_distance(one: Moments, other: Moments) -> float:
    """Return |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)) (Heusel et al. 2017, eq. 6).

    Args:
        one, other: float64, on one device.
    """
    return FrechetTo(one)(other)


class FrechetTo:
    """The Frechet distance to one set of features, whose root is taken once.

    The trace of the root is the sum of the roots of the eigenvalues of S^(1/2) S' S^(1/2), which
    is symmetric: exact for covariances of fewer images than features too, where a root of the
    product itself is singular, and several times quicker.

    Args:
        reference: float64.
    """

    def __init__(self, reference: Moments) -> None:
        self._mean_D, covariance_DD = reference
        values_D, vectors_DD = torch.linalg.eigh(_symmetric(covariance_DD))
        self._root_DD = vectors_DD * values_D.clamp(min=0).sqrt() @ vectors_DD.T
        self._trace = covariance_DD.trace()

    def __call__(self, moments: Moments) -> float:
        """Return the distance of moments on the same device."""
        mean_D, covariance_DD = moments
        product_DD = self._root_DD @ _symmetric(covariance_DD) @ self._root_DD
        roots_D = torch.linalg.eigvalsh(_symmetric(product_DD)).clamp(min=0).sqrt()
        means = (self._mean_D - mean_D).square().sum()
        return float(means + self._trace + covariance_DD.trace() - 2 * roots_D.sum())


def _symmetric(x_DD: Tensor) -> Tensor:
    return (x_DD + x_DD.T) / 2
