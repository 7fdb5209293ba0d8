"""Frechet distance, inception score, precision and recall against ADM's code, written out again."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch
from numpy.typing import NDArray

from tread_lab.evaluate import formulas
from tread_lab.evaluate.formulas import (
    RunningMoments,
    SplitSums,
    frechet_distance,
    frechet_influences,
    precision_recall,
)

Array = NDArray[np.float64]
COUNT, WIDTH = 20_000, 48


def features(seed: int, count: int = 800, width: int = 60) -> Array:
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(width, width)) * np.logspace(-2, 0, width)
    return np.abs(random.normal(size=(count, width)) @ mixing + 0.3 * seed)


def moments(x: Array) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(x.mean(axis=0)), torch.from_numpy(np.cov(x, rowvar=False))


def adms_frechet(one: tuple[Array, Array], other: tuple[Array, Array]) -> float:
    """openai/guided-diffusion, FIDStatistics: scipy's square root of the product."""
    (m1, s1), (m2, s2) = one, other
    root = scipy.linalg.sqrtm(s1.dot(s2))
    difference = m1 - m2
    return float(difference.dot(difference) + np.trace(s1) + np.trace(s2) - 2 * np.trace(root.real))


def adms_frechet_of(*features: Array) -> float:
    """The same of features."""
    one, other = ((x.mean(axis=0), np.cov(x, rowvar=False)) for x in features)
    return adms_frechet(one, other)


def test_frechet_distance_is_adms() -> None:
    one, other = features(0), features(1)
    expected = adms_frechet_of(one, other)
    assert expected > 1
    assert frechet_distance(moments(one), moments(other))[0] == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_few_images_is_exact() -> None:
    """Of fewer images than features, whose covariances are singular."""
    one, other = features(0, count=40), features(1, count=50)
    centred = [(x - x.mean(axis=0)) / np.sqrt(len(x) - 1) for x in (one, other)]
    # tr (A'A B'B)^(1/2) is the sum of the singular values of A B' (both of low rank)
    root = np.linalg.svd(centred[0] @ centred[1].T, compute_uv=False).sum()
    means = ((one.mean(axis=0) - other.mean(axis=0)) ** 2).sum()
    expected = means + sum((x**2).sum() for x in centred) - 2 * root
    found, _ = frechet_distance(moments(one), moments(other))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("size", [999, COUNT])
def test_streamed_moments_are_those_of_two_passes(size: int) -> None:
    """Of correlated features far from zero, of deviations from 1e-3 to 1."""
    random = np.random.default_rng(0)
    mixing = random.normal(size=(WIDTH, WIDTH)) * np.logspace(-3, 0, WIDTH)
    x_ND = 1000 + random.normal(size=(COUNT, WIDTH)) @ mixing
    found = RunningMoments()
    for part in torch.from_numpy(x_ND).split(size):
        found.add(part)
    covariance = np.cov(x_ND, rowvar=False)
    deviation = np.sqrt(np.diagonal(covariance))
    assert np.abs(found.mean_D.numpy() - x_ND.mean(axis=0)).max() < 1e-9
    error = np.abs(found.covariance_DD.numpy() - covariance) / np.outer(deviation, deviation)
    assert error.max() < 1e-9


def logits(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 2.5, (count, 100)).astype(np.float32)


def adms_score(logits_NK: NDArray[np.float32], split: int) -> float:
    """openai/guided-diffusion: softmax, splits in file order, mean of exp(KL)."""
    p_NK = scipy.special.softmax(logits_NK.astype(np.float64), axis=1)
    scores = []
    for start in range(0, len(p_NK), split):
        part = p_NK[start : start + split]
        divergence = scipy.special.rel_entr(part, part.mean(axis=0, keepdims=True)).sum(axis=1)
        scores.append(np.exp(divergence.mean()))
    return float(np.mean(scores))


def score(logits_NK: NDArray[np.floating]) -> float:
    sums = SplitSums()
    for part in torch.from_numpy(logits_NK).split(777):
        sums.add(part)
    return sums.score


@pytest.mark.parametrize("count", [10_000, 5_100])  # a last shorter split counts like the others
def test_inception_score_is_adms(count: int) -> None:
    assert score(logits(count)) == pytest.approx(adms_score(logits(count), 5_000), rel=1e-6)


def test_inception_score_ignores_offsets_of_logits() -> None:
    x = logits(40)
    shifted = x + np.linspace(-5000, 5000, 40)[:, None]
    assert score(shifted) == pytest.approx(score(x), rel=1e-6)


def adms_precision_recall(samples: Array, references: Array) -> tuple[float, float]:
    """openai/guided-diffusion, ManifoldEstimator, with one exact distance for every pair."""

    def far(x: Array, y: Array) -> Array:
        return np.stack([((row - y) ** 2).sum(axis=1) for row in x])

    radius_sample, radius_reference = (
        np.sort(far(x, x), axis=1)[:, 3] for x in (samples, references)
    )
    between = far(samples, references)
    in_reference_ball = (between <= radius_reference[None, :]).any(axis=1)
    in_sample_ball = (between <= radius_sample[:, None]).any(axis=0)
    return float(in_reference_ball.mean()), float(in_sample_ball.mean())


@pytest.mark.parametrize(("count", "shift", "spread"), [(400, 0.3, 1.0), (150, 0.0, 0.6)])
def test_precision_and_recall_are_adms(
    count: int, shift: float, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    references, samples = (
        (1000 + x).astype(np.float32)  # so far from zero that products of fp32 would be wrong
        for x in (
            random.normal(size=(250, 12)),
            shift + spread * random.normal(size=(count, 12)),
        )
    )
    expected = adms_precision_recall(samples.astype(np.float64), references.astype(np.float64))
    assert 0.1 < min(expected) < max(expected) < 1
    for block in (1 << 24, 1000):
        monkeypatch.setattr(formulas, "_DISTANCES", block)
        found = precision_recall(torch.from_numpy(samples), torch.from_numpy(references))
        assert found == pytest.approx(expected, abs=1e-12)


def test_image_on_the_rim_is_inside() -> None:
    """References at 0 to 3, whose outer balls reach to -3 and 6; samples there and beyond."""
    references, samples = (
        torch.tensor(x)[:, None] for x in ([0.0, 1.0, 2.0, 3.0], [-4.0, -3.0, 6.0, 7.0])
    )
    assert precision_recall(samples, references) == (0.5, 1.0)
    assert precision_recall(references, samples) == (1.0, 0.5)


def test_influences_are_a_delete_one_jackknife() -> None:
    one, other = features(0, count=300, width=8), features(1, count=900, width=8)
    distance, gradient_DD = frechet_distance(moments(other), moments(one))
    x_ND = torch.from_numpy(one)
    found = frechet_influences(moments(other), moments(one), gradient_DD, x_ND).numpy()
    without = [adms_frechet_of(np.delete(one, n, axis=0), other) for n in range(len(one))]
    pseudo = (len(one) - 1) * (distance - np.array(without))
    assert np.corrcoef(found, pseudo)[0, 1] > 0.999
    assert found.std(ddof=1) == pytest.approx(pseudo.std(ddof=1), rel=0.05)
