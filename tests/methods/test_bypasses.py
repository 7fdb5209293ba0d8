"""Claims about what stands beside routing: mask decoder and fusion, each against a reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.backbones.float64 import woken
from tread_lab.config import RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.methods.maskdit.decoder import MaskDecoder
from tread_lab.methods.sprint.fusion import Fusion
from tread_lab.routing import BatchRoute, Routing, draw_routing
from tread_lab.train.assemble import build_network

MODEL = {"depth": 6, "width": 32, "heads": 2}
MODERN = {"norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True}
RWKV = {"backbone": "rwkv", "depth": 6, "width": 32}
MAMBA = {"backbone": "mamba", "depth": 6, "width": 32, "state": 4}
MASK = {"kind": "mask", "depth": 2, "width": 16, "heads": 2}
KINDS: dict[str, dict[str, Any]] = {
    "route": {"routes": ["1->4"]},
    "v1": {"routes": ["0->2", "4->5"], "bypass": {"re_entry": "v1_sum"}},
    "mask": {"routes": ["0->B-1"], "bypass": MASK},
    "filled mask": {"routes": ["0->B-1"], "bypass": {**MASK, "fill": "entry"}},
    "mdt": {"routes": ["0->B-3"], "bypass": "mdt", "model": "MDT-6x32x2/2"},
    "mdt beside dit": {"routes": ["0->B-3 by bernoulli"], "bypass": "mdt"},
    "modern mdt": {"routes": ["0->B-3"], "bypass": "mdt", "model": {**MODEL, **MODERN}},
    "sprint": {"routes": ["2->B-3"], "bypass": "sprint"},
    "sprint frozen": {
        "routes": ["2->B-3"],
        "bypass": {"kind": "sprint", "mask_token": "frozen"},
    },
    "sprint structured": {"routes": ["2->B-3 by structured"], "bypass": "sprint"},
    "modern mask": {"routes": ["0->B-1"], "bypass": MASK, "model": {**MODEL, **MODERN}},
    "modern sprint": {"routes": ["2->B-3"], "bypass": "sprint", "model": {**MODEL, **MODERN}},
    "rwkv mask": {"routes": ["0->B-1 by rows"], "bypass": MASK, "model": RWKV},
    "mamba sprint": {"routes": ["2->B-3 by rows"], "bypass": "sprint", "model": MAMBA},
}


def spec_of(kind: str, **changes: Any) -> RunSpec:
    return decode(RunSpec, {"model": MODEL, "precision": "fp32", **KINDS[kind], **changes})


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(3, 1, 16, 16), torch.rand(3), torch.tensor([0, 5, 10])


def routing_of(spec: RunSpec, **more: Any) -> Routing:
    routing = draw_routing(spec.routes, (3, spec.tokens), "bypass", **more)
    assert routing is not None
    return routing


def whole(spec: RunSpec) -> Routing:
    keep_BN = torch.arange(spec.tokens).expand(3, -1)
    return tuple(BatchRoute(r.blocks[0], r.blocks[-1], keep_BN) for r in spec.routes)


@pytest.mark.parametrize("kind", KINDS)
def test_plan_of_all_tokens_is_dense(kind: str) -> None:
    spec = spec_of(kind)
    network = woken(build_network(spec))
    assert torch.allclose(network(*batch(), routing=whole(spec)), network(*batch()), atol=1e-6)
    assert not torch.allclose(
        network(*batch(), routing=routing_of(spec)), network(*batch()), atol=1e-3
    )


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_counted_exactly(kind: str) -> None:
    spec = spec_of(kind)
    network, price = build_network(spec), cost(spec)
    assert price.parameters == sum(p.numel() for p in network.parameters() if p.requires_grad)
    fixed = sum(p.numel() for p in network.parameters() if not p.requires_grad)
    assert price.positions == fixed and (kind != "sprint frozen" or fixed == 64 * 32 + 32)
    extra = price.parameters - cost(spec.dense()).parameters
    assert (extra > 0) == (spec.bypass.kind != "route")
    if not extra:
        dense = build_network(spec.dense())
        assert network.state_dict().keys() == dense.state_dict().keys()


def test_fusion_agrees_with_a_reference() -> None:
    torch.manual_seed(0)
    fusion, K, N, D = Fusion(8, spans=((2, 3),)), 5, 12, 8
    kept, entry = torch.randn(3, K, D), torch.randn(3, N, D)
    keep = torch.stack([torch.randperm(N)[:K].sort().values for _ in range(3)])
    dropped = torch.tensor([False, True, False])
    found = fusion(
        kept,
        BatchRoute(2, 3, keep, dropped_B=dropped),
        entry_BND=entry,
        embedded_BND=entry,
        c_BD=entry,
    )
    for b in range(3):
        for n in range(N):
            places = keep[b].tolist()
            deep = kept[b, places.index(n)] if n in places else fusion.mask_token[0, 0]
            deep = fusion.mask_token[0, 0] if dropped[b] else deep
            expected = F.linear(torch.cat([deep, entry[b, n]]), fusion.linear.weight)
            assert torch.allclose(found[b, n], expected + fusion.linear.bias, atol=1e-6)


def test_dropped_path_runs_no_deep_block() -> None:
    spec = spec_of("sprint")
    network, (route,) = woken(build_network(spec)), routing_of(spec, path_drop=0.999999)
    assert route.dropped_B is not None and bool(route.dropped_B.all())
    dropped = network(*batch(), routing=(route,))
    assert not torch.equal(network(*batch()), dropped)
    for block in list(network.blocks)[2:4]:
        block.forward = None  # type: ignore[assignment, method-assign]
    nothing = BatchRoute(route.start, route.end, torch.empty(3, 0, dtype=torch.long))
    assert torch.equal(network(*batch(), routing=(nothing,)), dropped)


def test_decoder_sees_all_places() -> None:
    torch.manual_seed(0)
    spec = spec_of("mask")
    decoder = woken(build_network(spec)).re_enter
    assert isinstance(decoder, MaskDecoder)
    N, D, keep = 64, 32, torch.tensor([[3, 10, 40]])
    kept, entry, c = torch.randn(1, 3, D), torch.randn(1, N, D), torch.randn(1, D)
    found = decoder(kept, BatchRoute(0, 5, keep), entry_BND=entry, embedded_BND=entry, c_BD=c)
    shift, scale = decoder.adaLN_modulation(c).chunk(2, dim=1)
    tokens = decoder.mask_token.expand(1, N, -1).clone()
    for k, n in enumerate(keep[0]):
        normal = (kept[0, k] - kept[0, k].mean()) / (kept[0, k].var(correction=0) + 1e-6).sqrt()
        tokens[0, n] = decoder.adapter(normal * (1 + scale[0]) + shift[0])
    tokens = tokens + decoder.pos_embed
    for block in decoder.blocks:
        tokens = block(tokens, c)
    assert found.shape == (1, N, 16) and torch.allclose(found, tokens, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_trained_parameter_gets_a_gradient(kind: str) -> None:
    spec = spec_of(kind)
    for routing in (None, routing_of(spec)):
        network = woken(build_network(spec))
        network(*batch(), routing=routing).square().mean().backward()
        without = {n for n, p in network.named_parameters() if p.requires_grad and p.grad is None}
        block = "re_enter.block." if spec.bypass.kind == "mdt" and routing is None else "none"
        assert all(name.startswith(block) for name in without)
