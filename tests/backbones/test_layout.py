"""The residual stream lies contiguous in memory, and laying it so changes no weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tread_lab.engine.assemble import build_network
from tread_lab.routing import draw_routing
from tread_lab.specs import RunSpec, decode

MODELS = ("DiT-4x32x2/2", "LightningDiT-4x32x2/2", "RWKV-4x32/2", "Mamba-4x32x4/2")


def run(model: str, *routes: str, **changes: Any) -> RunSpec:
    train = {"steps": 100, "batch": 8, "lr": 3e-3}
    tree = {"model": model, "routes": list(routes), "train": train, "precision": "fp32"}
    return decode(RunSpec, {**tree, **changes})


@pytest.mark.parametrize("routes", [(), ("1->2 by rows",)])
@pytest.mark.parametrize("model", MODELS)
def test_every_block_reads_and_writes_a_contiguous_stream(
    model: str, routes: tuple[str, ...]
) -> None:
    spec, layouts = run(model, *routes), []
    network = build_network(spec)
    for block in network.blocks:
        block.register_forward_hook(
            lambda _, args, out: layouts.append((args[0].is_contiguous(), out.is_contiguous()))
        )
    x = torch.randn(3, 1, 16, 16)
    assert network.x_embedder(x).is_contiguous()
    routing = draw_routing(spec.routes, (3, spec.tokens), "layout")
    network(x, torch.rand(3), torch.tensor([0, 5, 10]), routing)
    assert layouts == [(True, True)] * 4
