"""Counted parameters are the built network's, counted tokens are those that run, block by block."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tread_lab import draws
from tread_lab.engine.assemble import build_network
from tread_lab.engine.cost.blocks import block_cost
from tread_lab.engine.cost.training import cost
from tread_lab.routing import draw_routing
from tread_lab.specs import DataSpec, ModelSpec, RouteSpec, RunSpec, decode

TINY = ("DiT-3x32x2/2", "LightningDiT-3x32x2/2", "RWKV-3x32/2", "Mamba-3x32/2")
REAL = (
    *(f"{family}-{size}/2" for family in ("DiT", "LightningDiT") for size in ("S", "B", "L", "XL")),
    *(f"{family}-{size}/2" for family in ("RWKV", "Mamba") for size in ("S", "XL")),
    "LightningDiT-XL/1",
    "RWKV-210M/2",
    "Mamba-111M/2",
)


def run(model: object, *routes: RouteSpec, side: int = 16, classes: int = 10) -> RunSpec:
    data = DataSpec(source="latents", channels=4, size=side, classes=classes)
    return RunSpec(model=decode(ModelSpec, model), data=data, routes=routes)


def trainable(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


@pytest.mark.parametrize("model", TINY)
def test_counted_parameters_are_those_of_the_built_network(model: str) -> None:
    spec = run(model)
    network = build_network(spec)
    assert cost(spec).parameters == trainable(network)
    assert cost(spec).positions == network.get_parameter("pos_embed").numel()
    counted = block_cost(spec.model).parameters(spec.model)
    assert counted == trainable(network.get_submodule("blocks.0"))


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


@pytest.mark.parametrize("model", REAL)
def test_published_sizes_are_counted_as_built(model: str) -> None:
    """Built on the meta device: shapes without memory."""
    spec = run(model, side=32, classes=1000)
    with torch.device("meta"):
        assert cost(spec).parameters == trainable(build_network(spec))


@pytest.mark.parametrize(
    ("model", "paper"),
    [("RWKV-210M/2", 210e6), ("Mamba-111M/2", 111e6), ("LightningDiT-XL/1", 675e6)],
)
def test_parameters_of_the_papers_other_backbones(model: str, paper: float) -> None:
    channels = 32 if "Lightning" in model else 4
    data = DataSpec(source="latents", channels=channels, size=32, classes=1000)
    found = cost(RunSpec(model=decode(ModelSpec, model), data=data)).parameters
    assert found == pytest.approx(paper, rel=0.01)


class Tokens:
    """Tokens that enter each block, seen by hooks."""

    def __init__(self, network: nn.Module) -> None:
        self.seen: list[int] = []
        for block in network.get_submodule("blocks").children():
            block.register_forward_pre_hook(self._enter)

    def _enter(self, block: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.seen.append(inputs[0].shape[1])


@pytest.mark.parametrize("rate", [0.25, 0.4, 0.5, 0.75])
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
    network = build_network(spec)
    tokens = Tokens(network)
    routing = draw_routing(spec.routes, (2, spec.tokens), 0)
    x = draws.normal((2, 4, 16, 16), 0)
    network(x, torch.zeros(2), torch.zeros(2, dtype=torch.long), routing)
    assert tuple(tokens.seen) == cost(spec).tokens
    unit = {"random": 1, "rows": 8, "structured": 1}[selection]
    assert tokens.seen[1] == 64 - unit * int(64 // unit * rate)


def test_macs_are_the_products_of_the_matrices_that_ran() -> None:
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
