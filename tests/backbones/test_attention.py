"""Attention of the fp32 block: each way computes the published one, and a mask finds a kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, flex_attention

from tests.train.runs import CPU, small_run
from tread_lab.backbones.parts import Attention, attend
from tread_lab.train.provenance import attention_kernel

B, N, D, HEADS = 3, 32, 48, 4


class OnGpu(Tensor):
    """Numbers of a CPU that call themselves a GPU's."""

    is_cuda = True


def plain(part: Attention, x_BND: Tensor, real_BN: Tensor | None) -> Tensor:
    """Attention as it is written in a paper."""
    q, k, v = part.qkv(x_BND).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    logits_BHNN = q @ k.mT / (D // HEADS) ** 0.5
    if real_BN is not None:
        logits_BHNN = logits_BHNN.masked_fill(~real_BN[:, None, None], float("-inf"))
    return part.proj((logits_BHNN.softmax(dim=3) @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("by", "tolerance"), [("fused", 2e-6), ("math", 2e-6), ("flex", 2e-6), ("bf16", 2**-7)]
)
def test_each_way_equals_plain_fp32_attention(by: str, tolerance: float, *, masked: bool) -> None:
    """Output and gradients, relative to their largest element."""
    torch.manual_seed(0)
    part, x_BND = Attention(D, HEADS), torch.randn(B, N, D, requires_grad=True)
    real_BN = torch.rand(B, N) < 0.7 if masked else None
    part.by, found = by, []
    for out_BND in (part(x_BND, None, real_BN), plain(part, x_BND, real_BN)):
        gradients = torch.autograd.grad(out_BND.square().sum(), [x_BND, *part.parameters()])
        found.append([out_BND, *gradients])
    for mine, exact in zip(*found):
        most = float(exact.detach().abs().max())
        torch.testing.assert_close(mine, exact, rtol=0, atol=tolerance * most)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_kernel_equals_plain_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch refuses its gradient, which its unfused form has."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *inputs: None)
    torch.manual_seed(0)
    q, k, v = (torch.randn(B, HEADS, N, 12, requires_grad=True) for _ in range(3))
    outputs = [flex_attention.flex_attention(q, k, v), (q @ k.mT / 12**0.5).softmax(dim=3) @ v]
    found = [[out, *torch.autograd.grad(out.square().sum(), [q, k, v])] for out in outputs]
    for mine, exact in zip(*found):
        torch.testing.assert_close(mine, exact)


@pytest.mark.parametrize(
    ("by", "masked", "kernels"),
    [
        ("fused", True, {SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH}),
        ("bf16", True, {SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH}),
        ("math", True, {SDPBackend.MATH}),
        ("flex", False, {SDPBackend.MATH}),  # where no block is compiled
        ("fused", False, {*_cur_sdpa_kernel_backends()}),
    ],
)
def test_masks_go_to_kernels_that_take_them(
    by: str, kernels: set[SDPBackend], *, masked: bool
) -> None:
    x = torch.randn(1, 1, 4, 8).as_subclass(OnGpu)
    seen: Any = torch.ones(1, 1, 1, 4, dtype=torch.bool) if masked else None
    left = attend(x, x, x, seen, by=by, product=lambda *qkv, **mask: _cur_sdpa_kernel_backends())
    assert {*left} == kernels


@pytest.mark.parametrize(
    ("fp32_block", "kernel"),
    [("off", None), ("j+1", "FLASH_ATTENTION"), ("j+1/math", "MATH"), ("j+1/flex", "MATH")],
)
def test_kernel_of_the_fp32_block_is_recorded(fp32_block: str, kernel: str | None) -> None:
    """On a CPU torch's own is of the kind of flash attention, and nothing compiles flex."""
    assert attention_kernel(small_run(precision="bf16", fp32_block=fp32_block), CPU) == kernel
