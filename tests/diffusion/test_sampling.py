"""Images from seeds: their labels, noise and routed tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.backbones.float64 import woken
from tests.diffusion.images import drawn
from tread_lab import draws
from tread_lab.config import RouteSpec, RunSpec, SamplerSpec, decode
from tread_lab.diffusion.generate import ImageRoutes, _step_noise
from tread_lab.routing.select import Routing
from tread_lab.train.assemble import build_network


def network(x: Tensor, t: Tensor, y: Tensor, routing: object) -> Tensor:
    """Linear in z and in the label."""
    return 0.3 * x + 0.1 * y[:, None, None, None].float() + t[:, None, None, None]


@torch.no_grad()
def test_smaller_calls_give_equal_images() -> None:
    spec = decode(RunSpec, {"model": {"depth": 2, "width": 32, "heads": 2}, "precision": "fp32"})
    tiny, sampler = woken(build_network(spec)), SamplerSpec(steps=2, sigma_max=10)
    together, _ = drawn(tiny, sampler, 150, shape=(1, 16, 16), batch=256)
    for batch in (128, None):
        assert torch.equal(drawn(tiny, sampler, 150, shape=(1, 16, 16), batch=batch)[0], together)


def test_balanced_labels_take_their_turns() -> None:
    _, labels_B = drawn(network, SamplerSpec(steps=1, labels="balanced"), 25, batch=8)
    assert torch.bincount(labels_B).tolist() == [3] * 5 + [2] * 5
    later = SamplerSpec(steps=1, labels="balanced", seed=7)
    assert drawn(network, later, 4, batch=8)[1].tolist() == [0, 1, 2, 3]


def test_labels_and_noise_are_of_seeds() -> None:
    _, labels_B = drawn(network, SamplerSpec(steps=1, seed=7), 20)
    assert labels_B.tolist() == [
        int(torch.randint(10, (1,), generator=draws.generator("label", 7 + k))) for k in range(20)
    ]
    assert len(set(labels_B.tolist())) > 3
    noise = _step_noise((1, 2, 2), range(3, 5), torch.device("cpu"), 6)
    expected = [draws.normal((1, 2, 2), "image", seed, "step", 6) for seed in (3, 4)]
    assert noise.dtype == torch.float64 and torch.equal(noise, torch.stack(expected).double())


N = 64
ROUTES = (RouteSpec(start=1, end=3), RouteSpec(start=5, end=6))


def kept(routing: Routing | None, route: int = 0) -> list[set[int]]:
    assert routing is not None
    return [set(row.tolist()) for row in routing[route].keep_BK]


def routed(*seeds: int) -> ImageRoutes:
    return ImageRoutes(ROUTES, N, seeds, torch.device("cpu"))


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_branch_decides_the_rate(rate: float) -> None:
    dropped = routed(1, 2).dropped()
    for routing, kept in ((routed(1, 2).routing(rate, 0), N - int(rate * N)), (dropped, 0)):
        assert routing is not None
        assert [(route.start, route.end) for route in routing] == [(1, 3), (5, 6)]
        assert [route.keep_BK.shape for route in routing] == [(2, kept)] * 2
    assert routed(1).routing(0.9 / N, 0) is None, "no routed token is the dense network"


def test_weak_branch_routes_a_superset() -> None:
    routes = routed(1, 2, 3)
    assert kept(routes.routing(0.5, 0))[1:] == kept(routed(2, 3).routing(0.5, 0))
    for route in (0, 1):
        strong, weak = (kept(routes.routing(rate, 4), route) for rate in (0.3, 0.8))
        assert all(few < more for few, more in zip(weak, strong))


def test_images_levels_and_routes_differ() -> None:
    first, second = routed(1), routed(2)
    routings = [first.routing(0.5, 0), first.routing(0.5, 1), second.routing(0.5, 0)]
    rows = [kept(routing, route)[0] for routing in routings for route in (0, 1)]
    assert len({frozenset(row) for row in rows}) == len(rows)
