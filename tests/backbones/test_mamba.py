"""Mamba: the chunked scan equals the recurrence, the directions mirror each other."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.backbones.float64 import woken
from tread_lab.backbones import mamba as module
from tread_lab.backbones.mamba import CHUNK, Mixer, causal_convolution, selective_scans

LENGTHS = (1, 2, 7, 8, 9, 24, 37)  # chunks of 8: below, at, above, whole and broken multiples


def selective_scan(*scan: Tensor, chunk: int = CHUNK) -> Tensor:
    x, delta, A, B, C = scan
    return selective_scans([(x, delta, A, B, C)], chunk=chunk)[0]


def sequential(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Mamba's recurrence as it is written, one token at a time."""
    h = x.new_zeros(len(x), *A.shape)
    out = []
    for t in range(x.shape[1]):
        decay = torch.exp(delta[:, t, :, None] * A)
        h = decay * h + (delta[:, t] * x[:, t])[..., None] * B[:, t, None]
        out.append((h * C[:, t, None]).sum(-1))
    return torch.stack(out, dim=1)


def operands(N: int, *, state: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(N)
    x, B, C = (torch.randn(3, N, size, generator=generator) for size in (6, state, state))
    delta = torch.rand(3, N, 6, generator=generator)
    A = -3 * torch.rand(6, state, generator=generator)
    return [t.requires_grad_() for t in (x, delta, A, B, C)]


@pytest.mark.parametrize("state", [1, 4, 16])
@pytest.mark.parametrize("N", LENGTHS)
def test_chunks_equal_the_sequential_scan(N: int, state: int) -> None:
    inputs = operands(N, state=state)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    found, expected = selective_scan(*inputs, chunk=8), sequential(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    weight = torch.linspace(-1, 1, found.numel()).view_as(found)
    slopes = torch.autograd.grad((found * weight).sum(), inputs)
    wanted = torch.autograd.grad((expected * weight.double()).sum(), exact)
    for slope, want in zip(slopes, wanted):
        torch.testing.assert_close(slope.double(), want, rtol=1e-5, atol=1e-5)


def test_scans_side_by_side_are_scans_alone() -> None:
    """Two directions have their own decays; together they give what each gives, gradients too."""
    one, other = operands(20), [t.detach().flip(0).requires_grad_() for t in operands(20)]
    together = selective_scans([tuple(one), tuple(other)], chunk=8)  # type: ignore[list-item]
    for found, scan in zip(together, (one, other)):
        alone = selective_scan(*scan, chunk=8)
        assert torch.equal(found, alone)
        slopes = torch.autograd.grad(found.sum(), scan, retain_graph=True)
        for slope, want in zip(slopes, torch.autograd.grad(alone.sum(), scan)):
            torch.testing.assert_close(slope, want, rtol=1e-5, atol=1e-6)


def test_long_decays_and_large_steps_stay_finite() -> None:
    x, delta, A, B, C = operands(40)
    inputs = (x, 50 * delta, 50 * A, B, C)
    found = selective_scan(*inputs, chunk=8)
    torch.testing.assert_close(found, sequential(*inputs), rtol=1e-4, atol=1e-4)
    slopes = torch.autograd.grad(found.sum(), (x, delta, A, B, C))
    assert all(torch.isfinite(slope).all() for slope in slopes)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """A stand-in for the fused kernel with its layout: time last, as the published one wants it."""
    calls: list[tuple[int, ...]] = []

    def selective_scan_fn(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        calls.append(tuple(u.shape))
        return sequential(u.mT, delta.mT, A, B.mT, C.mT).mT

    name = "mamba_ssm.ops.selective_scan_interface"
    interface = types.ModuleType(name)
    interface.selective_scan_fn = selective_scan_fn  # type: ignore[attr-defined]
    for part in ("mamba_ssm", "mamba_ssm.ops"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    monkeypatch.setitem(sys.modules, name, interface)
    yield calls


def test_the_door_to_the_fused_kernel(kernel: list[tuple[int, ...]]) -> None:
    """No GPU here: the door is asked directly, with the kernel's layout of its operands."""
    inputs = operands(20)
    x, delta, A, B, C = (t.detach() for t in inputs)
    found = module.through(module.fused_scan(), x, delta, A, B, C)
    assert kernel == [(3, 6, 20)]
    torch.testing.assert_close(found, selective_scan(x, delta, A, B, C), rtol=1e-5, atol=1e-5)


def test_directions_are_exchanged_by_reversal() -> None:
    mixer, other = woken(Mixer(8, 4)), woken(Mixer(8, 4))
    other.forwards.load_state_dict(mixer.backwards.state_dict())
    other.backwards.load_state_dict(mixer.forwards.state_dict())
    x_BND = torch.randn(2, 7, 8)
    with torch.no_grad():
        found, expected = other(x_BND.flip(1)).flip(1), mixer(x_BND)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(mixer(x_BND.flip(1)).flip(1), expected, atol=1e-3)


def test_causal_convolution_is_torchs() -> None:
    x_BNE, weight, bias = torch.randn(2, 7, 6), torch.randn(6, 1, 4), torch.randn(6)
    expected_BEN = F.conv1d(F.pad(x_BNE.mT, (3, 0)), weight, bias, groups=6)
    torch.testing.assert_close(causal_convolution(x_BNE, weight, bias), expected_BEN.mT)
