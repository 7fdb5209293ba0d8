"""What every backbone owes under every selection: one class, run for each pair of them."""

# B batch, N tokens, K kept tokens, D width

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.backbones.dit import DiT
from tread_lab.config import DataSpec, ModelSpec, RouteSpec, RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.routing import BatchRoute, draw_routing
from tread_lab.train.assemble import build_network, fresh_network

B, SIDE, CLASSES = 3, 8, 5
START, END = 1, 2  # of 4 blocks
MODELS = {
    "dit": "DiT-4x32x2/1",
    "lightning": "LightningDiT-4x32x2/1",
    "mdt": "MDT-4x32x2/1",
    "rwkv": "RWKV-4x32/1",
    "mamba": {"backbone": "mamba", "depth": 4, "width": 32, "patch": 1, "state": 4},
}
PARTS = {"att": "norm1", "attn": "norm1", "mixer": "norm", "mlp": "norm2", "ffn": "norm2"}
SELECTIONS = ("random", "rows", "structured", "bernoulli", "importance")
PAIRS = [
    (model, selection)
    for model in MODELS
    for selection in SELECTIONS
    if selection == "rows" or not decode(ModelSpec, MODELS[model]).scans
]


def run(model: str, *routes: RouteSpec, **fields: Any) -> RunSpec:
    spec = dataclasses.replace(decode(ModelSpec, MODELS[model]), **fields)
    data = DataSpec(source="latents", channels=2, size=SIDE, classes=CLASSES)
    return RunSpec(model=spec, data=data, routes=routes)


def route(selection: str, rate: float = 0.5) -> RouteSpec:
    return decode(RouteSpec, {"start": START, "end": END, "rate": rate, "selection": selection})


@functools.cache
def perturbed(model: str) -> DiT:
    """A network whose every parameter has moved, as after some training."""
    network = fresh_network(run(model))
    assert isinstance(network, DiT)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                parameter += 0.1 * draws.normal(tuple(parameter.shape), name)
    return network


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    x = draws.normal((B, 2, SIDE, SIDE), "x")
    return x, torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0, 3, CLASSES])


class Watch:
    """What enters and leaves each block."""

    def __init__(self, network: DiT) -> None:
        self.entered: list[tuple[Tensor, ...]] = []
        self.left: list[Tensor] = []
        for block in network.blocks:
            block.register_forward_hook(self._see)

    def _see(self, block: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        self.entered.append(args)
        self.left.append(out)


def kept(leg: BatchRoute) -> Iterator[tuple[int, Tensor]]:
    """(sample, places of its kept tokens)."""
    for b in range(len(leg.keep_BK)):
        yield b, leg.keep_BK[b] if leg.real_BK is None else leg.keep_BK[b][leg.real_BK[b]]


@pytest.mark.parametrize(("model", "selection"), PAIRS)
class TestBackbone:
    """The oracles of routing, whatever the architecture."""

    @pytest.fixture
    def spec(self, model: str, selection: str) -> RunSpec:
        return run(model, route(selection))

    @pytest.fixture
    def leg(self, spec: RunSpec) -> BatchRoute:
        routing = draw_routing(spec.routes, (B, spec.tokens), "plan")
        assert routing is not None
        return routing[0]

    @pytest.fixture
    def network(self, model: str) -> DiT:
        return perturbed(model)

    def test_rate_zero_is_dense(self, model: str, selection: str) -> None:
        spec = run(model, route(selection, rate=0))
        assert spec == run(model)
        whole = BatchRoute(START, END, torch.arange(SIDE * SIDE).expand(B, -1))
        network = perturbed(model)
        found = network(*inputs(), (whole,))
        torch.testing.assert_close(found, network(*inputs()), rtol=1e-5, atol=1e-6)

    def test_routed_tokens_pass_bitwise(self, network: DiT, leg: BatchRoute) -> None:
        watch = Watch(network)
        network(*inputs(), (leg,))
        before, after = watch.left[START - 1], watch.entered[END + 1][0]
        for b, places in kept(leg):
            routed = torch.ones(SIDE * SIDE, dtype=torch.bool).scatter(0, places, False)
            assert routed.sum() > 0
            assert torch.equal(after[b, routed], before[b, routed])
            assert not torch.equal(after[b, places], before[b, places])

    def test_kept_tokens_run_as_the_subset_alone(self, network: DiT, leg: BatchRoute) -> None:
        watch = Watch(network)
        network(*inputs(), (leg,))
        before, after = watch.left[START - 1], watch.entered[END + 1][0]
        c_BD = watch.entered[0][1]
        positions_BNP = watch.entered[0][2]
        for b, places in kept(leg):
            x = before[b : b + 1, places]
            here = None if positions_BNP is None else positions_BNP[b : b + 1, places]
            for block in list(network.blocks)[START : END + 1]:
                x = block(x, c_BD[b : b + 1], here)
            torch.testing.assert_close(after[b : b + 1, places], x, rtol=1e-5, atol=1e-5)

    def test_positions_follow_their_tokens(self, network: DiT, leg: BatchRoute) -> None:
        watch = Watch(network)
        network(*inputs(), (leg,))
        positions = [entered[2] for entered in watch.entered]
        if positions[0] is None:
            assert not (network.spec.rope or network.spec.relative_bias)  # they are in the tokens
            return
        for l, here in enumerate(positions):
            inside = START <= l <= END
            for b, places in kept(leg):
                there = positions[0][b, places] if inside else positions[0][b]
                assert torch.equal(here[b, : len(there)], there)

    def test_the_stream_stays_contiguous(self, network: DiT, leg: BatchRoute) -> None:
        """Elementwise operations keep a layout, so that a transposed one would slow every block."""
        assert network.x_embedder(inputs()[0]).is_contiguous()
        for routing in ((leg,), None):
            watch = Watch(network)
            network(*inputs(), routing)
            streams = [*(entered[0] for entered in watch.entered), *watch.left]
            assert streams and all(stream.is_contiguous() for stream in streams)

    def test_state_dicts_interchange(self, spec: RunSpec, network: DiT, leg: BatchRoute) -> None:
        """Routing adds no parameter."""
        routed = build_network(spec)
        routed.load_state_dict(network.state_dict())
        assert torch.equal(routed(*inputs()), network(*inputs()))
        assert torch.equal(routed(*inputs(), (leg,)), network(*inputs(), (leg,)))

    def test_gradients_reach_every_parameter(self, network: DiT, leg: BatchRoute) -> None:
        network.zero_grad()
        network(*inputs(), (leg,)).square().mean().backward()
        for name, parameter in network.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, name
                assert torch.isfinite(parameter.grad).all(), name
                assert parameter.grad.abs().max() > 0, name

    def test_samples_do_not_see_each_other(self, network: DiT, leg: BatchRoute) -> None:
        x, t, y = inputs()
        together = network(x, t, y, (leg,))
        for b in range(B):
            (x_1, t_1, y_1), leg_1 = (part[[b]] for part in (x, t, y)), leg.each(itemgetter([b]))
            alone = network(x_1, t_1, y_1, (leg_1,))
            torch.testing.assert_close(together[[b]], alone, rtol=1e-4, atol=1e-5)

    def test_low_precision_runs_close_to_fp32(self, network: DiT, leg: BatchRoute) -> None:
        exact = network(*inputs(), (leg,))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            low = network(*inputs(), (leg,)).float()
        assert (low - exact).norm() / exact.norm() < 0.05


@pytest.mark.parametrize("model", MODELS)
class TestInitialisation:
    """Both initialisations mean the same for every backbone."""

    def test_its_cost_counts_its_parameters(self, model: str) -> None:
        trained = sum(p.numel() for p in perturbed(model).parameters() if p.requires_grad)
        assert cost(run(model)).parameters == trained

    def test_adaln_zero_starts_as_the_identity(self, model: str) -> None:
        network = fresh_network(run(model))
        assert isinstance(network, DiT)
        watch = Watch(network)
        assert torch.count_nonzero(network(*inputs())) == 0
        for before, after in pairwise([watch.entered[0][0], *watch.left]):
            assert torch.equal(before, after)

    def test_official_code_overwrites_the_zeros(self, model: str) -> None:
        network = fresh_network(run(model, init="official_code"))
        out = network(*inputs()).detach()
        assert 0.3 < float(out.std()) < 3
        for name, parameter in network.named_parameters():
            if "adaLN_modulation" in name and name.endswith("weight"):
                rows, columns = parameter.shape
                bound = (6 / (rows + columns)) ** 0.5  # Xavier's
                assert 0.9 * bound < float(parameter.detach().abs().max()) <= bound, name


@pytest.mark.parametrize("model", MODELS)
class TestConditioning:
    """Label, level and place reach the output."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda x, t, y: (x, t, (y + 1) % CLASSES),
            lambda x, t, y: (x, t + 0.5, y),
            lambda x, t, y: (x.flip(2), t, y),
        ],
        ids=["label", "level", "place"],
    )
    def test_it_matters(self, model: str, change: Callable[..., Any]) -> None:
        network = perturbed(model)
        before, after = network(*inputs()), network(*change(*inputs()))
        assert not torch.allclose(before, after, atol=1e-4)
        assert not torch.allclose(before.flip(2), after, atol=1e-4)

    def test_parts_are_modulated_in_published_order(self, model: str) -> None:
        network = perturbed(model)
        block: Any = network.blocks[0]
        x, c = draws.normal((B, SIDE**2, 32), "tokens"), draws.normal((B, 32), "conditioning")
        modulation, expected = block.adaLN_modulation(c)[:, None].split(32, dim=2), x
        for name, norm in PARTS.items():
            if not hasattr(block, name):
                continue
            (shift, scale, gate), modulation = modulation[:3], modulation[3:]
            h = getattr(block, norm)(expected) * (1 + scale) + shift
            places = (network.places_1NP,) if name == "attn" else ()
            expected = expected + gate * getattr(block, name)(h, *places)
        assert not modulation
        torch.testing.assert_close(block(x, c, network.places_1NP), expected, rtol=1e-4, atol=1e-5)

    def test_every_token_reaches_every_other(self, model: str) -> None:
        """Both directions of a scan: the first pixel changes the last patch and the reverse."""
        network = perturbed(model)
        x, t, y = inputs()
        for source, target in (((0, 0), (-1, -1)), ((-1, -1), (0, 0))):
            changed = x.clone()
            changed[:, :, source[0], source[1]] += 1
            moved = network(changed, t, y) - network(x, t, y)
            assert moved[:, :, target[0], target[1]].abs().min() > 0
