"""Moments of channels against two passes in float64, far from zero and in uneven parts."""

from __future__ import annotations

import numpy as np
import pytest

from tread_lab.prepare.moments import ChannelMoments


def test_one_pass_gives_the_moments_of_two() -> None:
    rng = np.random.default_rng(0)
    offset_C, spread_C = np.array([1e4, -3.0, 0.0]), np.array([1.0, 20, 1e-3])
    x_NCHW = (rng.normal(size=(37, 5, 4, 3)) * spread_C + offset_C).transpose(0, 3, 1, 2)
    moments = ChannelMoments(3)
    for part in np.split(x_NCHW, [1, 5, 30]):
        moments.add(part)
    assert moments.mean_C == pytest.approx(x_NCHW.mean(axis=(0, 2, 3)), rel=1e-12, abs=1e-12)
    assert moments.deviation_C == pytest.approx(x_NCHW.std(axis=(0, 2, 3)), rel=1e-9)
    assert moments.deviation == pytest.approx(x_NCHW.std(), rel=1e-12)
