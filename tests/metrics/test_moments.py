"""Streamed moments against two passes over all features."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tread_lab.metrics.moments import Moments

CPU = torch.device("cpu")
COUNT, WIDTH = 50_000, 48


def features(seed: int = 0, count: int = COUNT) -> torch.Tensor:
    """Correlated features far from zero, of deviations from 1e-3 to 1."""
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(WIDTH, WIDTH)) * np.logspace(-3, 0, WIDTH)
    return torch.from_numpy(1000 + random.normal(size=(count, WIDTH)) @ mixing)


def streamed(x_ND: torch.Tensor, size: int) -> Moments:
    moments = Moments()
    for part in x_ND.split(size):
        moments.add(part)
    return moments


@pytest.mark.parametrize("size", [64, 999, 50_000])
def test_50000_streamed_features_have_the_moments_of_two_passes(size: int) -> None:
    x = features()
    found, mean = streamed(x, size), x.numpy().mean(axis=0)
    centred = x.numpy() - mean
    covariance = centred.T @ centred / (COUNT - 1)
    deviation = np.sqrt(np.diagonal(covariance))
    assert found.count == COUNT
    assert np.abs(found.mean_D.numpy() - mean).max() < 1e-9
    error = np.abs(found.covariance_DD.numpy() - covariance) / np.outer(deviation, deviation)
    assert error.max() < 1e-9
    assert np.allclose(found.covariance_DD, np.cov(x.numpy(), rowvar=False), rtol=0, atol=1e-9)


def test_half_precision_features_are_summed_in_float64() -> None:
    x = features(count=200).half()
    assert streamed(x, 64).mean_D.dtype == torch.float64
    assert np.allclose(streamed(x, 64).mean_D, x.double().mean(dim=0), atol=1e-12)


def test_merged_moments_are_those_of_all() -> None:
    x = features(count=700)
    merged = streamed(x[:300], 64)
    merged.merge(streamed(x[300:], 100))
    merged.merge(Moments())
    assert torch.allclose(merged.covariance_DD, streamed(x, 64).covariance_DD, atol=1e-10)


def test_moments_go_on_from_their_state_bit_by_bit() -> None:
    x = features(count=640)
    whole, first, second = streamed(x, 64), streamed(x[:320], 64), Moments()
    second.load(first.state(), CPU)
    for part in x[320:].split(64):
        second.add(part)
    assert torch.equal(second.covariance_DD, whole.covariance_DD)
    assert torch.equal(second.mean_D, whole.mean_D)


def test_their_size_does_not_grow() -> None:
    sizes = []
    for count in (1_000, 10_000):
        state = streamed(features(count=count), 100).state()
        sizes.append(sum(x.nbytes for x in state.values()))
    assert sizes[0] == sizes[1] == 8 * (1 + WIDTH + WIDTH**2)
