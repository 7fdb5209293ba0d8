"""The Frechet distance between two sets of features, from their moments, in float64."""

# D features

from __future__ import annotations

import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor]  # mean [D], covariance [D, D]


def frechet_distance(one: Moments, other: Moments) -> float:
    """Return |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)) (Heusel et al. 2017, eq. 6).

    The trace of the root is the sum of the roots of the eigenvalues of S^(1/2) S' S^(1/2), which
    is symmetric: exact for covariances of fewer images than features too, where a root of the
    product itself is singular, and several times quicker.

    Args:
        one, other: float64, on one device.
    """
    (mean_D, S_DD), (mean2_D, S2_DD) = one, other
    values_D, vectors_DD = torch.linalg.eigh(_symmetric(S_DD))
    root_DD = vectors_DD * values_D.clamp(min=0).sqrt() @ vectors_DD.T
    product_DD = root_DD @ _symmetric(S2_DD) @ root_DD
    roots_D = torch.linalg.eigvalsh(_symmetric(product_DD)).clamp(min=0).sqrt()
    means = (mean_D - mean2_D).square().sum()
    return float(means + S_DD.trace() + S2_DD.trace() - 2 * roots_D.sum())


def _symmetric(x_DD: Tensor) -> Tensor:
    return (x_DD + x_DD.T) / 2
