"""The Frechet distance against ADM's code, written out with SciPy's square root of a matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray

from tread_lab.metrics.frechet import frechet_distance

Array = NDArray[np.float64]


def features(seed: int, count: int = 800, width: int = 60) -> Array:
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(width, width)) * np.logspace(-2, 0, width)
    return np.abs(random.normal(size=(count, width)) @ mixing + 0.3 * seed)


def moments(x: Array) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(x.mean(axis=0)), torch.from_numpy(np.cov(x, rowvar=False))


def adm(one: Array, other: Array) -> float:
    """openai/guided-diffusion, FIDStatistics: numpy.cov and scipy's square root of the product."""
    (m1, s1), (m2, s2) = ((x.mean(axis=0), np.cov(x, rowvar=False)) for x in (one, other))
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


def test_a_set_is_at_no_distance_from_itself() -> None:
    one = moments(features(0))
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)
