"""Stored values measured: classes, channels, and the scale that gives a wanted deviation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import LATENTS, packed
from tread_lab.data.source import open_store
from tread_lab.data.statistics import Statistics, write_statistics
from tread_lab.prepare.measure import ChannelMoments, measure
from tread_lab.specs import UserError

__all__ = ["packed"]


def test_counts_moments_and_scale_are_those_of_numpy(packed: Path) -> None:
    measured, x_NCHW = measure(open_store("latents", packed)), LATENTS.astype(np.float64)
    assert measured.counts == (6, 6, 6, 6, 6, 5, 5) and measured.shape == (4, 8, 8)
    assert measured.mean_C == pytest.approx(x_NCHW.mean(axis=(0, 2, 3)), abs=1e-12)
    assert measured.deviation_C == pytest.approx(x_NCHW.std(axis=(0, 2, 3)), rel=1e-12)
    assert measured.deviation == pytest.approx(x_NCHW.std(), rel=1e-12) and measured.spread == 0
    assert (measured.lowest, measured.highest) == (x_NCHW.min(), x_NCHW.max())
    assert (x_NCHW * measured.scale_for(0.5)).std() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_statistics_that_would_not_be_taken_are_not_written(value: float, tmp_path: Path) -> None:
    wrong = Statistics(np.zeros(2), np.array([1.0, value]))
    with pytest.raises(UserError, match=r"not written: .*`tread-lab data verify` names"):
        write_statistics(tmp_path / "statistics.json", wrong)
    assert not (tmp_path / "statistics.json").exists()


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


def test_the_posteriors_variance_counts(packed: Path) -> None:
    (packed / "latents.npy").unlink()
    log_variance = np.full(LATENTS.shape, np.log(4.0))
    both = np.concatenate([LATENTS.astype(np.float64), log_variance], axis=1)
    np.save(packed / "moments.npy", both)
    measured = measure(open_store("latents", packed))
    assert measured.spread == pytest.approx(2.0, rel=1e-12)
    whole = np.sqrt(LATENTS.astype(np.float64).var() + 4)
    assert measured.deviation == pytest.approx(whole, rel=1e-12)
