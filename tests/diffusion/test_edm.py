"""Claims about EDM: its distribution of noise, its preconditioning, its optimum."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.diffusion import EDM
from tread_lab.specs import EDMSpec, SamplerSpec

edm = EDM(EDMSpec())


def test_levels_are_log_normal_and_quantiles_are_exact() -> None:
    u = (torch.arange(100_000) + 0.5) / 100_000
    log = edm.level(u).log()
    assert float(log.mean()) == pytest.approx(-1.2, abs=1e-3)
    assert float(log.std()) == pytest.approx(1.2, abs=2e-3)
    assert float(edm.level(torch.tensor([0.5]))) == pytest.approx(math.exp(-1.2), rel=1e-5)
    extremes = edm.level(torch.tensor([0.0, 1.0]))
    assert torch.isfinite(extremes).all() and (extremes > 0).all()


def optimal(x: Tensor, t: Tensor) -> Tensor:
    """F of the optimal denoiser for N(0, sigma_data^2) data: D = c_skip z, so F = 0."""
    return torch.zeros_like(x)


def test_the_optimal_denoiser_of_gaussian_data_is_c_skip() -> None:
    z = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    sigma = torch.tensor([0.01, 0.1, 0.5, 2.0, 50.0])
    expected = z * (0.25 / (0.25 + sigma.double() ** 2))[:, None, None, None]
    assert torch.allclose(edm.predict(optimal, z, sigma), expected, rtol=1e-6)


def test_the_weighted_loss_of_the_optimal_denoiser_is_one_at_every_level() -> None:
    """lambda(sigma) E||D - x||^2 = lambda s^2 sigma^2 / (s^2 + sigma^2) = 1."""
    x = 0.5 * draws.normal((4, 1, 128, 128), "x")
    noise = draws.normal((4, 1, 128, 128), "noise")
    loss = edm.loss_terms(optimal, x, noise, torch.tensor([0.05, 0.3, 1.0, 10.0])).loss()
    assert torch.allclose(loss, torch.ones(4), rtol=0.05)


def test_the_network_sees_unit_variance_and_log_sigma_over_four() -> None:
    seen: dict[str, Tensor] = {}

    def network(z: Tensor, t: Tensor) -> Tensor:
        seen.update(z=z, t=t)
        return z

    x, noise = 0.5 * draws.normal((2, 1, 256, 256), "a"), draws.normal((2, 1, 256, 256), "b")
    sigma = torch.tensor([0.1, 20.0])
    edm.loss_terms(network, x, noise, sigma).loss()
    assert torch.allclose(seen["z"].std(dim=(1, 2, 3)), torch.ones(2), atol=0.02)
    assert torch.allclose(seen["t"], sigma.log() / 4)


def test_the_grid_falls_from_sigma_max_to_sigma_min_to_zero() -> None:
    grid = edm.grid(SamplerSpec(steps=40))
    assert len(grid) == 41 and grid.dtype == torch.float64
    assert float(grid[0]) == pytest.approx(80) and float(grid[-2]) == pytest.approx(0.002)
    assert grid[-1] == 0 and (grid.diff() < 0).all()
