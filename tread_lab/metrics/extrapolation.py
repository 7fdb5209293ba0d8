"""FID of infinitely many images, extrapolated from FIDs of fewer (Chong and Forsyth 2020)."""

# B batch, D features

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tread_lab.metrics.frechet import FrechetTo, RunningMoments

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

    def state(self) -> dict[str, Tensor]:
        """Return all that is known, on the CPU; `load` goes on from it with equal results."""
        begun = {k: moments for k, moments in enumerate(self.eighths) if moments.count}
        return {f"{k}.{key}": x for k, m in begun.items() for key, x in m.state().items()}

    def load(self, state: Mapping[str, Tensor], device: torch.device) -> None:
        """Go on from a state."""
        for k, moments in enumerate(self.eighths):
            own = {key.partition(".")[::2]: x for key, x in state.items()}
            if found := {key: x for (eighth, key), x in own.items() if eighth == str(k)}:
                moments.load(found, device)
        self._seen = sum(moments.count for moments in self.eighths)


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
