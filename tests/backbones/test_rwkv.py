"""Bi-WKV by running sums equals its definition, values and gradients, and survives any keys."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tread_lab.backbones.rwkv import bi_wkv, shift


def sequential(decay_D: Tensor, first_D: Tensor, k_BND: Tensor, v_BND: Tensor) -> Tensor:
    """The definition, one token at a time."""
    N = k_BND.shape[1]
    out = []
    for t in range(N):
        distance_N = (torch.arange(N) - t).abs()[:, None]
        weight_ND = torch.where(distance_N == 0, first_D / N, -(distance_N - 1) * decay_D / N)
        out.append(((weight_ND + k_BND).softmax(dim=1) * v_BND).sum(dim=1))
    return torch.stack(out, dim=1)


def operands(N: int, *, keys: float = 2.0, decays: float = 3.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(N)
    shapes = ((6,), (6,), (3, N, 6), (3, N, 6))
    scales = (decays, 1.0, keys, 1.0)
    drawn = [s * torch.randn(shape, generator=generator) for shape, s in zip(shapes, scales)]
    return [t.requires_grad_() for t in drawn]


@pytest.mark.parametrize("N", (1, 2, 37))
def test_running_sums_equal_the_sequential_sum(N: int) -> None:
    inputs = operands(N)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    found, expected = bi_wkv(*inputs), sequential(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    weight = torch.linspace(-1, 1, found.numel()).view_as(found)
    slopes = torch.autograd.grad((found * weight).sum(), inputs)
    wanted = torch.autograd.grad((expected * weight.double()).sum(), exact, allow_unused=True)
    for slope, want in zip(slopes, wanted):
        want = torch.zeros_like(slope).double() if want is None else want
        torch.testing.assert_close(slope.double(), want, rtol=1e-5, atol=1e-5)


def test_large_keys_stay_finite_and_exact() -> None:
    for large in ({"keys": 30.0}, {"keys": 1000.0}, {"decays": 30.0}):
        inputs = operands(37, **large)
        found, expected = bi_wkv(*inputs), sequential(*(t.double() for t in inputs))
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
        slopes = torch.autograd.grad(found.sum(), inputs)
        assert all(torch.isfinite(slope).all() for slope in slopes)


def test_low_precision_is_computed_in_fp32() -> None:
    w, u, k, v = operands(20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = bi_wkv(w, u, k.bfloat16(), v.bfloat16())
    assert found.dtype is torch.bfloat16
    exact = bi_wkv(w, u, k.bfloat16().float(), v.bfloat16().float())
    assert torch.equal(found, exact.bfloat16())


def test_each_neighbour_gives_quarter_of_channels() -> None:
    """From the left, the right, above and below; zeros stand beyond the border."""
    grid = torch.arange(1.0, 7.0).view(1, 6, 1).expand(1, 6, 4)
    assert shift(grid, 3)[0].T.tolist() == [
        [0, 1, 2, 0, 4, 5],
        [2, 3, 0, 5, 6, 0],
        [0, 0, 0, 1, 2, 3],
        [4, 5, 6, 0, 0, 0],
    ]
