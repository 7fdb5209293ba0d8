"""Precision and recall against their definition, written out in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tread_lab.evaluate import neighbours
from tread_lab.evaluate.neighbours import precision_recall


def adm(samples: NDArray[np.float64], references: NDArray[np.float64]) -> tuple[float, float]:
    """openai/guided-diffusion, ManifoldEstimator, with one exact distance for every pair."""

    def far(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.stack([((row - y) ** 2).sum(axis=1) for row in x])

    radius_sample, radius_reference = (
        np.sort(far(x, x), axis=1)[:, 3] for x in (samples, references)
    )
    between = far(samples, references)
    in_reference_ball = (between <= radius_reference[None, :]).any(axis=1)
    in_sample_ball = (between <= radius_sample[:, None]).any(axis=0)
    return float(in_reference_ball.mean()), float(in_sample_ball.mean())


@pytest.mark.parametrize(("count", "shift", "spread"), [(400, 0.3, 1.0), (150, 0.0, 0.6)])
def test_they_are_adms(
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
    expected = adm(samples.astype(np.float64), references.astype(np.float64))
    assert 0.1 < min(expected) < max(expected) < 1
    for block in (1 << 24, 1000):
        monkeypatch.setattr(neighbours, "_DISTANCES", block)
        found = precision_recall(torch.from_numpy(samples), torch.from_numpy(references))
        assert found == pytest.approx(expected, abs=1e-12)


def test_an_image_on_the_rim_of_a_ball_is_inside() -> None:
    """References at 0 to 3, whose outer balls reach to -3 and 6; samples there and beyond."""
    references, samples = (
        torch.tensor(x)[:, None] for x in ([0.0, 1.0, 2.0, 3.0], [-4.0, -3.0, 6.0, 7.0])
    )
    assert precision_recall(samples, references) == (0.5, 1.0)
    assert precision_recall(references, samples) == (1.0, 0.5)
