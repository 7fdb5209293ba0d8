"""Measures what is stored: samples of each class, mean and deviation, and the scale it needs."""

# B batch, C channels, H height, W width

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.scaled import Store


class ChannelMoments:
    """Sums over samples in float64, shifted by the first sample's mean so that nothing cancels."""

    def __init__(self, channels: int) -> None:
        self.count = 0  # values in a channel
        self._shift_C: NDArray[np.float64] | None = None
        self._sum_C, self._squares_C = np.zeros(channels), np.zeros(channels)

    def add(self, x_BCHW: NDArray[np.floating]) -> None:
        """Add samples."""
        values_BCN = x_BCHW.reshape(*x_BCHW.shape[:2], -1).astype(np.float64)
        if self._shift_C is None:
            self._shift_C = values_BCN[0].mean(axis=1)
        values_BCN -= self._shift_C[:, None]
        self._sum_C += values_BCN.sum(axis=(0, 2))
        self._squares_C += np.einsum("bcn,bcn->c", values_BCN, values_BCN)
        self.count += values_BCN.shape[0] * values_BCN.shape[2]

    @property
    def mean_C(self) -> NDArray[np.float64]:
        """The mean of each channel."""
        assert self._shift_C is not None
        return self._shift_C + self._sum_C / self.count

    @property
    def deviation_C(self) -> NDArray[np.float64]:
        """The standard deviation of each channel, over N."""
        variance_C = self._squares_C / self.count - (self._sum_C / self.count) ** 2
        return np.sqrt(np.maximum(variance_C, 0))

    @property
    def deviation(self) -> float:
        """The standard deviation over all values of all channels."""
        mean_C = self.mean_C
        between = float(((mean_C - mean_C.mean()) ** 2).mean())
        return math.sqrt(float((self.deviation_C**2).mean()) + between)


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
    """Read every sample once and measure.

    Raises:
        UserError: a sample cannot be read.
    """
    C = store.shape[0]
    moments, variance, count = ChannelMoments(C), 0.0, 0
    lowest, highest = np.inf, -np.inf
    for start in range(0, len(store.labels), AT_ONCE):
        ids = np.arange(start, min(start + AT_ONCE, len(store.labels)))
        stored_BCHW = store.read(ids)
        x_BCHW = stored_BCHW[:, :C]
        moments.add(x_BCHW)
        lowest, highest = min(lowest, float(x_BCHW.min())), max(highest, float(x_BCHW.max()))
        variance += float(posterior_variance(store, stored_BCHW).sum())
        count += x_BCHW.size
    spread = variance / count
    return Measured(
        shape=store.shape,
        counts=tuple(np.bincount(np.maximum(store.labels, 0)).tolist()),
        mean_C=moments.mean_C,
        deviation_C=moments.deviation_C,
        spread=float(np.sqrt(spread)),
        deviation=float(np.sqrt(moments.deviation**2 + spread)),
        lowest=lowest,
        highest=highest,
    )


def posterior_variance(store: Store, stored_BCHW: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the variance of the posterior, empty where none is stored."""
    behind_BCHW = stored_BCHW[:, store.shape[0] :].astype(np.float64)
    return behind_BCHW**2 if store.posterior == "deviation" else np.exp(behind_BCHW)
