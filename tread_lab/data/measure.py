"""Measures what is stored: samples of each class, mean and deviation, and the scale it needs."""

# B batch, C channels, H height, W width, N values

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.scaled import Store

AT_ONCE = 256  # samples


@dataclass(frozen=True)
class Measured:
    """What is stored, before any scale.

    Attributes:
        counts: samples of each label 0..highest.
        mean_C, deviation_C: of each channel, float64; of the posterior's mean where one is stored.
        spread: root of the mean variance of the posterior; 0 without one.
        deviation: over all values of all channels, the posterior's variance included.
        lowest, highest: the extreme values.
    """

    shape: tuple[int, int, int]
    counts: tuple[int, ...]
    mean_C: NDArray[np.float64]
    deviation_C: NDArray[np.float64]
    spread: float
    deviation: float
    lowest: float
    highest: float

    def scale_for(self, deviation: float) -> float:
        """Return the `scale` that gives the network's values a deviation."""
        return deviation / self.deviation


def measure(store: Store) -> Measured:
    """Read every sample once and measure, in float64.

    Sums are shifted by the first sample's mean, so that nothing cancels.

    Raises:
        UserError: a sample cannot be read.
    """
    C, count = store.shape[0], len(store.labels) * math.prod(store.shape[1:])
    shift_C = store.read(np.arange(1))[0, :C].astype(np.float64).mean(axis=(1, 2))
    sum_C, squares_C, variance = np.zeros(C), np.zeros(C), 0.0
    lowest, highest = np.inf, -np.inf
    for start in range(0, len(store.labels), AT_ONCE):
        stored_BCHW = store.read(np.arange(start, min(start + AT_ONCE, len(store.labels))))
        values_BCN = stored_BCHW.reshape(*stored_BCHW.shape[:2], -1).astype(np.float64)
        x_BCN, behind_BCN = values_BCN[:, :C], values_BCN[:, C:]
        lowest, highest = min(lowest, x_BCN.min()), max(highest, x_BCN.max())
        of_deviation = store.posterior == "deviation"
        variance += (behind_BCN**2 if of_deviation else np.exp(behind_BCN)).sum()
        x_BCN -= shift_C[:, None]
        sum_C += x_BCN.sum(axis=(0, 2))
        squares_C += np.einsum("bcn,bcn->c", x_BCN, x_BCN)
    mean_C = shift_C + sum_C / count
    deviation_C = np.sqrt(np.maximum(squares_C / count - (sum_C / count) ** 2, 0))
    spread = variance / (count * C)
    within = float((deviation_C**2).mean() + ((mean_C - mean_C.mean()) ** 2).mean())
    return Measured(
        shape=store.shape,
        counts=tuple(np.bincount(np.maximum(store.labels, 0)).tolist()),
        mean_C=mean_C,
        deviation_C=deviation_C,
        spread=math.sqrt(spread),
        deviation=math.sqrt(within + spread),
        lowest=float(lowest),
        highest=float(highest),
    )
