"""FID of infinitely many images: the bias of few images is taken off, and its error is honest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tread_lab.metrics.extrapolation import EighthMoments, extrapolated
from tread_lab.metrics.frechet import FrechetTo

CPU = torch.device("cpu")
WIDTH = 40
DEVIATION = np.logspace(-1, 0, WIDTH)
# Two normal distributions whose covariances commute: their distance is known.
REFERENCE = torch.zeros(WIDTH).double(), torch.from_numpy(np.diag(DEVIATION**2))
TRUE = 0.1**2 * WIDTH + float(((1.2 * DEVIATION - DEVIATION) ** 2).sum())


def images(seed: int, count: int) -> torch.Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(0.1 + 1.2 * DEVIATION * random.normal(size=(count, WIDTH)))


def eighths(x_ND: torch.Tensor, size: int = 64) -> EighthMoments:
    kept = EighthMoments(len(x_ND))
    for part in x_ND.split(size):
        kept.add(part)
    return kept


def distance(x: NDArray[np.float64]) -> float:
    """The distance to the reference, of which the root is a diagonal."""
    s = np.cov(x, rowvar=False)
    roots = np.linalg.eigvalsh(np.diag(DEVIATION) @ s @ np.diag(DEVIATION))
    mean = x.mean(axis=0)
    return float(mean @ mean + np.trace(s) + (DEVIATION**2).sum() - 2 * np.sqrt(roots).sum())


def test_it_is_the_intercept_of_the_line_through_four_sizes() -> None:
    x = images(0, 1000)
    parts = np.array_split(x.numpy(), 8)
    means = []
    for sets in (8, 4, 2, 1):
        joined = [np.concatenate(parts[k::sets]) for k in range(sets)]
        means.append(np.mean([distance(part) for part in joined]))
    slope_and_intercept = np.linalg.lstsq(
        np.stack([1 / np.array([125, 250, 500, 1000]), np.ones(4)], axis=1), np.array(means)
    )[0]
    error = np.std([distance(part) for part in parts], ddof=1) / np.sqrt(8)
    found = extrapolated(eighths(x).eighths, FrechetTo(REFERENCE))
    assert found == pytest.approx((slope_and_intercept[1], error), rel=1e-6)


def test_it_takes_off_the_bias_within_its_error() -> None:
    found, errors, plain = [], [], []
    for seed in range(40):
        x = images(seed, 1000)  # 25 images a feature, as 50,000 of Inception's have
        value, error = extrapolated(eighths(x).eighths, FrechetTo(REFERENCE))
        found.append(value)
        errors.append(error)
        plain.append(distance(x.numpy()))
    bias, left = np.mean(plain) - TRUE, np.mean(found) - TRUE
    assert abs(left) < 0.15 * bias
    assert 0.6 < np.mean(errors) / np.std(found, ddof=1) < 1.6


def test_its_moments_go_on_from_their_state() -> None:
    x = images(0, 500)
    whole, first, second = eighths(x), EighthMoments(500), EighthMoments(500)
    first.add(x[:200])
    second.load(first.state(), CPU)
    for part in x[200:].split(64):
        second.add(part)
    assert [m.count for m in second.eighths] == [62, 63, 62, 63, 62, 63, 62, 63]
    for one, other in zip(whole.eighths, second.eighths, strict=True):
        assert torch.allclose(one.covariance_DD, other.covariance_DD, atol=1e-12)
