"""The Frechet distance against ADM's code, and its streamed moments."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray

from tread_lab.evaluate.frechet import RunningMoments, frechet_distance

Array = NDArray[np.float64]


def features(seed: int, count: int = 800, width: int = 60) -> Array:
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(width, width)) * np.logspace(-2, 0, width)
    return np.abs(random.normal(size=(count, width)) @ mixing + 0.3 * seed)


def moments(x: Array) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(x.mean(axis=0)), torch.from_numpy(np.cov(x, rowvar=False))


def adm(one: Array, other: Array) -> float:
    """openai/guided-diffusion, FIDStatistics, of features."""
    return of_moments(*((x.mean(axis=0), np.cov(x, rowvar=False)) for x in (one, other)))


def of_moments(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """The same of numpy's moments, by scipy's square root of the product."""
    (m1, s1), (m2, s2) = one, other
    root = scipy.linalg.sqrtm(s1.dot(s2))
    difference = m1 - m2
    return float(difference.dot(difference) + np.trace(s1) + np.trace(s2) - 2 * np.trace(root.real))


def test_it_is_adms() -> None:
    one, other = features(0), features(1)
    expected = adm(one, other)
    assert expected > 1
    assert frechet_distance(moments(one), moments(other)) == pytest.approx(expected, rel=1e-9)


def test_fewer_images_than_features_give_the_limit_of_many_roots() -> None:
    one, other = features(0, count=40), features(1, count=50)
    (m1, s1), (m2, s2) = (tuple(x.numpy() for x in moments(y)) for y in (one, other))
    centred = [(x - x.mean(axis=0)) / np.sqrt(len(x) - 1) for x in (one, other)]
    # tr (A'A B'B)^(1/2) is the sum of the singular values of A B' (both of low rank)
    root = np.linalg.svd(centred[0] @ centred[1].T, compute_uv=False).sum()
    expected = ((m1 - m2) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * root
    found = frechet_distance(moments(one), moments(other))
    assert found == pytest.approx(expected, rel=1e-6)


COUNT, WIDTH = 50_000, 48


def far_features() -> torch.Tensor:
    """Correlated features far from zero, of deviations from 1e-3 to 1."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(WIDTH, WIDTH)) * np.logspace(-3, 0, WIDTH)
    return torch.from_numpy(1000 + random.normal(size=(COUNT, WIDTH)) @ mixing)


def streamed(x_ND: torch.Tensor, size: int) -> RunningMoments:
    moments = RunningMoments()
    for part in x_ND.split(size):
        moments.add(part)
    return moments


@pytest.mark.parametrize("size", [999, 50_000])
def test_50000_streamed_features_have_the_moments_of_two_passes(size: int) -> None:
    x = far_features()
    found, mean = streamed(x, size), x.numpy().mean(axis=0)
    centred = x.numpy() - mean
    covariance = centred.T @ centred / (COUNT - 1)
    deviation = np.sqrt(np.diagonal(covariance))
    assert found.count == COUNT
    assert np.abs(found.mean_D.numpy() - mean).max() < 1e-9
    error = np.abs(found.covariance_DD.numpy() - covariance) / np.outer(deviation, deviation)
    assert error.max() < 1e-9
    assert np.allclose(found.covariance_DD, np.cov(x.numpy(), rowvar=False), rtol=0, atol=1e-9)
