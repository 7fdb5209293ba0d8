"""Counted parameters are the built network's, counted tokens are those that run, block by block."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tread_lab import draws
from tread_lab.config import DataSpec, ModelSpec, RouteSpec, RunSpec, decode
from tread_lab.cost.blocks import block_cost
from tread_lab.cost.training import cost
from tread_lab.routing import draw_routing
from tread_lab.train.assemble import build_network

TINY = ("DiT-3x32x2/2", "LightningDiT-3x32x2/2", "RWKV-3x32/2", "Mamba-3x32/2")


def run(model: object, *routes: RouteSpec) -> RunSpec:
    data = DataSpec(source="latents", channels=4, size=16, classes=10)
    return RunSpec(model=decode(ModelSpec, model), data=data, routes=routes)


def trainable(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


OPTIONS = {"norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True, "mlp_ratio": 2.5}


@pytest.mark.parametrize(
    "options",
    [
        *({name: value} for name, value in OPTIONS.items()),
        {"backbone": "mamba", "state": 4},
        {"backbone": "mamba", "width": 36},
    ],
)
def test_each_option_of_the_block_is_counted(options: dict[str, object]) -> None:
    spec = run({"depth": 2, "width": 32, "heads": 2, **options})
    assert cost(spec).parameters == trainable(build_network(spec))


@pytest.mark.parametrize(
    ("model", "channels", "paper"),
    [
        ("DiT-XL/2", 4, 675e6),
        ("LightningDiT-XL/1", 32, 675e6),
        ("RWKV-210M/2", 4, 210e6),
        ("Mamba-111M/2", 4, 111e6),
    ],
)
def test_published_sizes_are_counted_as_built(model: str, channels: int, paper: float) -> None:
    """Built on the meta device: shapes without memory."""
    data = DataSpec(source="latents", channels=channels, size=32, classes=1000)
    spec = RunSpec(model=decode(ModelSpec, model), data=data)
    with torch.device("meta"):
        assert cost(spec).parameters == trainable(build_network(spec))
    assert cost(spec).parameters == pytest.approx(paper, rel=0.01)


@pytest.mark.parametrize("rate", [0.4, 0.75])
@pytest.mark.parametrize(
    ("model", "selection"),
    [
        *((model, "rows") for model in TINY),
        *((model, selection) for model in TINY[:2] for selection in ("random", "structured")),
    ],
)
def test_executed_tokens_are_the_counted_ones(model: str, selection: str, rate: float) -> None:
    route = decode(RouteSpec, {"start": 1, "end": 1, "rate": rate, "selection": selection})
    spec = run(model, route)
    network, seen = build_network(spec), list[int]()
    for block in network.get_submodule("blocks").children():
        block.register_forward_pre_hook(lambda block, inputs: seen.append(inputs[0].shape[1]))
    routing = draw_routing(spec.routes, (2, spec.tokens), 0)
    x = draws.normal((2, 4, 16, 16), 0)
    network(x, torch.zeros(2), torch.zeros(2, dtype=torch.long), routing)
    assert tuple(seen) == cost(spec).tokens
    unit = {"random": 1, "rows": 8, "structured": 1}[selection]
    assert seen[1] == 64 - unit * int(64 // unit * rate)


def test_macs_are_executed_products() -> None:
    """What is not attention or a scan, against the linear maps as hooks see them."""
    for model in TINY:
        spec = run(model)
        network, n = build_network(spec).get_submodule("blocks.0"), spec.tokens
        seen = 0

        def count(module: nn.Module, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            nonlocal seen
            assert isinstance(module, nn.Linear)
            seen += out.numel() * module.in_features

        for module in network.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(count)
        network(torch.randn(1, n, 32), torch.randn(1, 32))
        d, s = spec.model.width, spec.model.state
        rest = {"dit": 2 * n * n * d, "rwkv": 6 * n * d, "mamba": n * 4 * d * (4 + 4 * s)}
        assert block_cost(spec.model).macs(spec.model, n) == seen + rest[spec.model.backbone]
