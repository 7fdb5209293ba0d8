"""Mean and deviation of stored values, for each channel and over all, in one pass in float64."""

# B batch, C channels, H height, W width

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class ChannelMoments:
    """Sums over samples in float64, shifted by the first sample's mean so that nothing cancels.

    Args:
        channels: C.
    """

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
