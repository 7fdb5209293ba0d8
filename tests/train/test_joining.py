"""Claims about what stands beside the backbone: its cost as published, and as torch counts it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tread_lab.config import RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.routing import Routing, draw_routing
from tread_lab.train.assemble import build_network

MODEL = {"depth": 6, "width": 32, "heads": 2}
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "route": {"routes": ["1->4"]},
    "mask": {"routes": ["0->B-1"], "bypass": {"kind": "mask", "depth": 2, "width": 16, "heads": 2}},
    "filled": {
        "routes": ["0->B-1"],
        "bypass": {"kind": "mask", "depth": 2, "width": 16, "heads": 2, "fill": "entry"},
    },
    "mdt": {"routes": ["0->B-3"], "bypass": "mdt"},
    "sprint": {"routes": [{"start": 2, "end": "B-3", "rate": 0.75}], "bypass": "sprint"},
}


def small(kind: str, **more: Any) -> RunSpec:
    return decode(RunSpec, {"model": MODEL, "precision": "fp32", **KINDS[kind], **more})


def xl(**fields: Any) -> RunSpec:
    data = {"source": "latents", "channels": 4, "size": 32, "classes": 1000}
    return decode(RunSpec, {"model": "DiT-XL/2", "data": data, **fields})


def counted(spec: RunSpec, routing: Routing | None) -> int:
    """MACs of one image's forward pass as torch counts them while it runs."""
    network = build_network(spec).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        network(torch.randn(1, 1, 16, 16), torch.rand(1), torch.zeros(1).long(), routing)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize("kind", KINDS)
def test_macs_equal_torchs_count(kind: str) -> None:
    spec = small(kind)
    assert cost(spec).dense.network == counted(spec, None)
    routing = draw_routing(spec.routes, (1, spec.tokens), "cost")
    assert cost(spec).routed.network == counted(spec, routing)


def test_projector_and_head_have_known_costs() -> None:
    """d = 384 of S, N = 256: REPA with h = 2048 and e = 768; SD-DiT with 64, 32 and 100."""
    repa = xl(model="DiT-S/2", repa={"block": 3, "hidden": 2048})
    products = 384 * 2048 + 2048 * 2048 + 2048 * 768
    plain = cost(xl(model="DiT-S/2"))
    aligned = cost(repa)
    assert aligned.auxiliary == products + 2048 + 2048 + 768
    assert {aligned.dense.auxiliary, aligned.routed.auxiliary} == {256 * products}
    kept = 4 * 256 * (384 + 3 * 768) + 2 * 256 * (384 + 4 * 2048)  # bf16
    assert aligned.activation_bytes == plain.activation_bytes + kept
    loss = {"kind": "discrimination", "hidden": 64, "bottleneck": 32, "prototypes": 100}
    head = 384 * 64 + 64 * 64 + 64 * 32 + 32 * 100
    masked = {"routes": ["0->B-1"], "bypass": "mask", "repa": {"block": 3, "hidden": 2048}}
    both = cost(xl(model="DiT-S/2", loss=loss, **masked))
    assert both.auxiliary == aligned.auxiliary + head + 64 + 64 + 32
    assert both.dense.auxiliary == 2 * both.routed.auxiliary == 256 * (head + products)
