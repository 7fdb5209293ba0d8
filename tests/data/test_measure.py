"""Stored values measured: classes, channels, and the scale that gives a wanted deviation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import LATENTS
from tread_lab.data.measure import measure
from tread_lab.data.scaled import Posterior, Store
from tread_lab.data.source import open_store


def test_counts_moments_and_scale_are_those_of_numpy(packed: Path) -> None:
    measured, x_NCHW = measure(open_store("latents", packed)), LATENTS.astype(np.float64)
    assert measured.counts == (6, 6, 6, 6, 6, 5, 5) and measured.shape == (4, 8, 8)
    assert measured.mean_C == pytest.approx(x_NCHW.mean(axis=(0, 2, 3)), abs=1e-12)
    assert measured.deviation_C == pytest.approx(x_NCHW.std(axis=(0, 2, 3)), rel=1e-12)
    assert measured.deviation == pytest.approx(x_NCHW.std(), rel=1e-12) and measured.spread == 0
    assert (measured.lowest, measured.highest) == (x_NCHW.min(), x_NCHW.max())
    assert (x_NCHW * measured.scale_for(0.5)).std() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    ("posterior", "behind"), [("log_variance", math.log(4.0)), ("deviation", 2.0)]
)
def test_the_posteriors_variance_counts(posterior: Posterior, behind: float) -> None:
    """Both posteriors have the deviation 2."""
    x_NCHW = LATENTS.astype(np.float64)
    store = Store()
    store.shape, store.labels, store.posterior = (4, 8, 8), np.zeros(40, np.int64), posterior
    both_NCHW = np.concatenate([x_NCHW, np.full_like(x_NCHW, behind)], axis=1)
    store.read = lambda ids, mirrored=None: both_NCHW[ids]  # type: ignore[method-assign]
    measured = measure(store)
    assert measured.spread == pytest.approx(2.0, rel=1e-12)
    assert measured.deviation == pytest.approx(np.sqrt(x_NCHW.var() + 4), rel=1e-12)
