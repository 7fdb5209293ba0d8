"""Tokens routed at inference: exact counts, nested between branches, ranked by the image's seed."""

from __future__ import annotations

import pytest
import torch

from tread_lab.routing.select import Routing
from tread_lab.sampling.image_routes import ImageRoutes
from tread_lab.specs import RouteSpec

CPU, N = torch.device("cpu"), 64
ROUTES = (RouteSpec(start=1, end=3), RouteSpec(start=5, end=6))


def kept(routing: Routing | None, route: int = 0) -> list[set[int]]:
    assert routing is not None
    return [set(row.tolist()) for row in routing[route].keep_BK]


def routed(*seeds: int) -> ImageRoutes:
    return ImageRoutes(ROUTES, N, seeds, CPU)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_branch_decides_the_rate_and_the_count_is_exact(rate: float) -> None:
    routing = routed(1, 2).routing(rate, 0)
    assert routing is not None and [(route.start, route.end) for route in routing] == [
        (1, 3),
        (5, 6),
    ]
    assert [route.keep_BK.shape for route in routing] == [(2, N - int(rate * N))] * 2
    dropped = routed(1, 2).dropped() or ()
    assert [(route.start, route.end) for route in dropped] == [(1, 3), (5, 6)]
    assert [route.keep_BK.shape for route in dropped] == [(2, 0)] * 2


def test_no_routed_token_is_the_dense_network() -> None:
    assert routed(1).routing(0.0, 0) is None
    assert routed(1).routing(0.9 / N, 0) is None


def test_the_weak_branch_routes_a_superset() -> None:
    routes = routed(1, 2, 3)
    for route in (0, 1):
        for strong, weak in zip(
            kept(routes.routing(0.3, 4), route), kept(routes.routing(0.8, 4), route)
        ):
            assert weak < strong


def test_an_image_takes_its_ranking_along() -> None:
    assert kept(routed(1, 2, 3).routing(0.5, 0))[1:] == kept(routed(2, 3).routing(0.5, 0))


def test_images_levels_and_routes_differ() -> None:
    routings = [routed(seed).routing(0.5, index) for seed, index in ((1, 0), (2, 0), (1, 1))]
    rows = [kept(routing, route)[0] for routing in routings for route in (0, 1)]
    assert len({frozenset(row) for row in rows}) == len(rows)
