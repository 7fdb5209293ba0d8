"""Sampling costs what its calls execute: branches, rates and intervals counted one by one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.train.runs import imagenet
from tread_lab.config import FlowSpec, HeldoutSpec, SamplerSpec, SamplesSpec, decode
from tread_lab.config.evaluation import SimilaritySpec
from tread_lab.cost.training import (
    cost,
    pass_flops,
)
from tread_lab.diffusion import build_process
from tread_lab.evaluate.sampling_calls import call_macs, sample_flops
from tread_lab.methods.sprint.spec import SprintBypass

# Sparse guidance, table 2: SiT-XL/2 with r(2->24), GMAC of one step under every guidance.
XL = imagenet("XL", "2->24", process=FlowSpec())
SG_FLOPS = {"weight": 1.5, "strong": {"rate": 0.5}, "weak": {"rate": 0.9}}
SG_FID = {"weight": 1.5, "strong": {"rate": "0->0.6"}, "weak": {"rate": "0.6->0", "step": 50}}


def sampler(guidance: Any, **fields: Any) -> SamplerSpec:
    return decode(SamplerSpec, {"solver": "euler", "steps": 40, "guidance": guidance, **fields})


def block(n: int) -> int:
    d = 1152
    return 12 * n * d * d + 2 * n * n * d + 6 * d * d


def forward(kept: int) -> int:
    """28 blocks, 23 of them on `kept` of 256 tokens, and what is around them."""
    N, d, patch = 256, 1152, 16
    around = N * patch * d + 256 * d + d * d + 2 * d * d + N * d * patch
    return around + 5 * block(N) + 23 * block(kept)


def test_the_formula_of_every_call() -> None:
    assert set(call_macs(XL, sampler(1))) == {forward(256)}
    assert set(call_macs(XL, sampler(2))) == {2 * forward(256)}
    assert set(call_macs(XL, sampler(SG_FLOPS))) == {forward(256 - 128) + forward(256 - 230)}


@pytest.mark.parametrize(
    ("guidance", "published", "attention"),
    [(1, 114.42, 4.228), (2, 228.84, 8.456), (SG_FLOPS, 97.67, 2.414), (SG_FID, 173.16, 5.251)],
)
def test_published_gmacs_leave_attention_out(
    guidance: Any, published: float, attention: float
) -> None:
    """The mean over 40 steps, to a third of a percent; with attention they are 4% higher."""
    macs = call_macs(XL, sampler(guidance))
    assert sum(macs) / len(macs) / 1e9 - attention == pytest.approx(published, rel=4e-3)


def test_image_flops_are_twice_the_macs() -> None:
    dense = cost(XL).dense.network
    assert sample_flops(XL, sampler(1)) == 2 * 40 * dense
    assert sample_flops(XL, sampler(3)) == 2 * 80 * dense
    assert sample_flops(XL, sampler(1, solver="heun")) == 2 * 79 * dense  # one onto level 0
    assert sample_flops(XL, sampler(1, solver="heun_full")) == 2 * 80 * dense
    routed = {"weight": 1, "strong": {"rate": 0.5}}
    assert sample_flops(XL, sampler(routed)) == 2 * 40 * cost(XL).routed.network


def test_heldout_loss_takes_both_passes() -> None:
    heldout, dense, routed = HeldoutSpec(images=200, levels=3), cost(XL).dense.network, cost(XL)
    assert pass_flops(XL, heldout) == 2 * 600 * (dense + routed.routed.network)
    assert pass_flops(XL.dense(), heldout) == 2 * 600 * dense
    assert pass_flops(XL, SimilaritySpec(images=200, levels=3)) == 2 * 600 * dense


def test_guidance_is_free_outside_its_interval() -> None:
    gated = {"weight": 2, "interval": [0.3, 0.6]}
    levels = build_process(XL.process).grid(sampler(gated))[:-1]
    inside = int(((levels >= 0.3) & (levels <= 0.6)).sum())
    assert 0 < inside < 40
    dense = cost(XL).dense.network
    assert sum(call_macs(XL, sampler(gated))) == (40 + inside) * dense
    shown = SamplesSpec(count=3, sampler=sampler(gated))
    assert pass_flops(XL, shown) == 3 * 2 * 80 * dense, "a forecast has no levels"


def test_dropped_path_skips_its_blocks() -> None:
    """Blocks 2 to 24 of 28 run for no token; the strong branch runs all."""
    spec = imagenet("XL", "2->24", process=FlowSpec(), bypass=SprintBypass())
    guidance = {"weight": 1.5, "weak": {"path": "dropped"}}
    dense = forward(256) + 256 * 2 * 1152**2  # with the fusion
    assert set(call_macs(spec, sampler(guidance))) == {dense + dense - 23 * block(256)}
