"""The Frechet distance of two sets of features, from moments in float64."""

# B batch, N images so far, D features

from __future__ import annotations

import torch
from torch import Tensor

Moments = tuple[Tensor, Tensor]  # mean [D], covariance [D, D]


class RunningMoments:
    """The mean and the centred sum of products of all features so far, on their device.

    A batch is centred by its own mean and joined by the update of Chan, Golub and LeVeque (1983),
    so that no difference of large sums is taken:

        delta = mean_B - mean,  mean += delta B / (N + B),  M2 += M2_B + delta delta' N B / (N + B)
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean_D = torch.zeros(0)
        self.products_DD = torch.zeros(0)

    def add(self, x_BD: Tensor) -> None:
        """Take features of any float type; they are summed in float64."""
        x_BD = x_BD.double()
        mean_D = x_BD.mean(dim=0)
        centred_BD = x_BD - mean_D
        count, products_DD = len(x_BD), centred_BD.T @ centred_BD
        if not self.count:
            self.count, self.mean_D, self.products_DD = count, mean_D, products_DD
            return
        total, delta_D = self.count + count, mean_D - self.mean_D
        self.products_DD += products_DD
        self.products_DD.addr_(delta_D, delta_D, alpha=self.count * count / total)
        self.mean_D = self.mean_D + delta_D * (count / total)
        self.count = total

    @property
    def covariance_DD(self) -> Tensor:
        """The covariance with N - 1 in the denominator, as `numpy.cov` has it."""
        return self.products_DD / (self.count - 1)


def frechet_distance(one: Moments, other: Moments) -> float:
    """Return the Frechet distance of two sets of features, of float64 moments on one device.

    It is |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)) (Heusel et al. 2017, eq. 6). The trace of the
    root is the sum of the roots of the eigenvalues of S^(1/2) S' S^(1/2), which is symmetric: exact
    for covariances of fewer images than features too, where a root of the product itself is
    singular, and several times quicker.
    """
    (mean_D, covariance_DD), (other_mean_D, other_DD) = one, other
    values_D, vectors_DD = torch.linalg.eigh(_symmetric(covariance_DD))
    root_DD = vectors_DD * values_D.clamp(min=0).sqrt() @ vectors_DD.T
    product_DD = root_DD @ _symmetric(other_DD) @ root_DD
    roots_D = torch.linalg.eigvalsh(_symmetric(product_DD)).clamp(min=0).sqrt()
    means = (mean_D - other_mean_D).square().sum()
    return float(means + covariance_DD.trace() + other_DD.trace() - 2 * roots_D.sum())


def _symmetric(x_DD: Tensor) -> Tensor:
    return (x_DD + x_DD.T) / 2
