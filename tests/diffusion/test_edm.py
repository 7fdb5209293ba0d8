"""EDM's noise levels in training and sampling; its network and loss: test_processes.py."""

from __future__ import annotations

import math

import pytest
import torch

from tread_lab.config import EDMSpec, SamplerSpec
from tread_lab.diffusion import EDM


def test_levels_are_log_normal() -> None:
    """ln(sigma) at quantiles that lie 0, 1 and -2 deviations off the mean; the ends are finite."""
    edm = EDM(EDMSpec(p_mean=-1.2, p_std=1.5))
    log_B = edm.level(torch.tensor([0.5, 0.8413447, 0.0227501])).log()
    assert log_B.tolist() == pytest.approx([-1.2, 0.3, -4.2], abs=1e-4)
    extremes = edm.level(torch.tensor([0.0, 1.0]))
    assert torch.isfinite(extremes).all() and (extremes > 0).all()


def test_grid_is_even_in_the_root() -> None:
    grid = EDM(EDMSpec()).grid(SamplerSpec(steps=3, sigma_min=0.5, sigma_max=8.0, rho=3))
    middle = ((8 ** (1 / 3) + 0.5 ** (1 / 3)) / 2) ** 3
    assert grid.dtype == torch.float64 and grid[-1] == 0
    assert grid.tolist() == pytest.approx([8.0, middle, 0.5, 0.0])
    assert math.isclose(middle, 2.7256, rel_tol=1e-4)
