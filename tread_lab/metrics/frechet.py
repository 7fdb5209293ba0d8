"""The Frechet distance of two sets of features, from moments in float64; of infinitely many."""

# B batch, N images so far, D features

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
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
        self._join(len(x_BD), mean_D, centred_BD.T @ centred_BD)

    def merge(self, other: RunningMoments) -> None:
        """Take the features of another set, of which only the moments are known."""
        if other.count:
            self._join(other.count, other.mean_D, other.products_DD)

    def _join(self, count: int, mean_D: Tensor, products_DD: Tensor) -> None:
        if not self.count:
            self.count, self.mean_D, self.products_DD = count, mean_D, products_DD.clone()
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


class FrechetTo:
    """The Frechet distance to one set of features, whose root is taken once.

    It is |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)) (Heusel et al. 2017, eq. 6). The trace of the
    root is the sum of the roots of the eigenvalues of S^(1/2) S' S^(1/2), which is symmetric: exact
    for covariances of fewer images than features too, where a root of the product itself is
    singular, and several times quicker.

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


EIGHTHS = 8


class EighthMoments:
    """The moments of each eighth of the images, in their order: disjoint sets of one size.

    Args:
        count: of all images.
    """

    def __init__(self, count: int) -> None:
        self._count, self._seen = count, 0
        self.eighths = [RunningMoments() for _ in range(EIGHTHS)]

    def add(self, x_BD: Tensor) -> None:
        """Take the features of the next images."""
        ends = [(k + 1) * self._count // EIGHTHS for k in range(EIGHTHS)]
        for moments, end in zip(self.eighths, ends):
            part_BD, x_BD = x_BD.tensor_split([max(0, end - self._seen)])
            if len(part_BD):
                moments.add(part_BD)
                self._seen += len(part_BD)


def extrapolated(eighths: Sequence[RunningMoments], distance: FrechetTo) -> tuple[float, float]:
    """Return FID of infinitely many images and its standard error.

    FID_n is the mean over disjoint sets of n images, for n of an eighth, a quarter, a half and all
    images; FID_n = FID_inf + c / n is fitted to the four by least squares (Chong and Forsyth 2020,
    eq. 8, who draw the smaller sets anew). The standard error is that of the mean of the eight
    smallest sets, which are independent: to first order all four means share it.
    """
    sizes, means, smallest = [], [], [0.0]
    for sets in (8, 4, 2, 1):
        joined = [_joined(eighths[k::sets]) for k in range(sets)]
        values = [distance((m.mean_D, m.covariance_DD)) for m in joined]
        if sets == EIGHTHS:
            smallest = values
        sizes.append(sum(m.count for m in joined) / sets)
        means.append(math.fsum(values) / sets)
    _, intercept = np.polyfit(1 / np.array(sizes), means, deg=1)
    return float(intercept), float(np.std(smallest, ddof=1) / math.sqrt(EIGHTHS))


def _joined(parts: Sequence[RunningMoments]) -> RunningMoments:
    joined = RunningMoments()
    for part in parts:
        joined.merge(part)
    return joined
