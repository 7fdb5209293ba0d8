"""Routed tokens rejoin bitwise; two routes and v1's sum agree with a plain reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.config import ReEntrySpec, RouteSpec, decode
from tread_lab.routing import BatchRoute, Return, draw_routing, run_blocks, select
from tread_lab.routing.rejoin import gather_tokens, scatter_tokens

B, N, D, DEPTH = 3, 16, 8, 10
Route = tuple[int, int]


class Mixing(nn.Module):
    """A block in which every token sees every other one that is there."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(D, D)

    def forward(self, x_BND: Tensor, c_BD: Tensor, *places: Tensor | None) -> Tensor:
        return x_BND + torch.tanh(self.map(x_BND) + x_BND.mean(1, keepdim=True)) + c_BD[:, None]


def stack() -> list[Mixing]:
    torch.manual_seed(0)
    return [Mixing() for _ in range(DEPTH)]


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, N, D), torch.randn(B, D)


def routing_of(*routes: Route) -> tuple[BatchRoute, ...]:
    specs = [RouteSpec(start=i, end=j, rate=0.5).resolved(DEPTH) for i, j in routes]
    routing = draw_routing(specs, (B, N), "re-entry")
    assert routing is not None
    return routing


def reference(
    blocks: list[Mixing],
    x_BND: Tensor,
    c_BD: Tensor,
    routing: tuple[BatchRoute, ...],
    re_entry: Any,
) -> Tensor:
    """The same one sample and one token at a time, with lists instead of gathers."""
    rows = []
    for b in range(B):
        embedded = list(x_BND[b])
        tokens, before, kept = list(embedded), list(embedded), list(range(N))
        for l, block in enumerate(blocks):
            for route in routing:
                if route.start == l:
                    before, kept = list(tokens), route.keep_BK[b].tolist()
            out = block(torch.stack([tokens[n] for n in kept])[None], c_BD[b : b + 1])[0]
            for place, n in enumerate(kept):
                tokens[n] = out[place]
            for route in routing:
                if route.end == l:
                    for n in set(range(N)) - set(kept):
                        tokens[n] = returned(
                            re_entry, embedded[n], before[n], first=route.start == 0
                        )
                    kept = list(range(N))
        rows.append(torch.stack(tokens))
    return torch.stack(rows)


X_T = {"x_T": True, "x_D_last": False}


def returned(re_entry: Any, x_T: Tensor, x_D_last: Tensor, *, first: bool) -> Tensor:
    if re_entry == "identity" or (re_entry == "v1_sum" and first):
        return x_D_last
    return x_T if re_entry is X_T else x_T + x_D_last


@pytest.mark.parametrize("re_entry", ["identity", "v1_sum", "v1_code", X_T])
@pytest.mark.parametrize("routes", [((0, 4), (6, 9)), ((1, 3), (4, 7)), ((0, 8),)])
def test_routes_agree_with_a_reference(routes: tuple[Route, ...], re_entry: Any) -> None:
    (x, c), blocks, routing = inputs(), stack(), routing_of(*routes)
    found = run_blocks(
        blocks, x, c, routing=routing, re_enter=Return(decode(ReEntrySpec, re_entry))
    )
    assert torch.allclose(found, reference(blocks, x, c, routing, re_entry), atol=1e-6)


def leg(selection: str, start: int = 1, end: int = 2) -> BatchRoute:
    route = RouteSpec(start=start, end=end, selection=selection)  # type: ignore[arg-type]
    return select(route, draws.uniform((B, N), selection))


def tokens() -> Tensor:
    return draws.normal((B, N, 5), "x")


def test_padding_is_masked_where_counts_differ() -> None:
    heard: list[int] = []

    def block(x: Tensor, c: Tensor, positions: Tensor | None, *real: Tensor) -> Tensor:
        heard.append(len(real))
        return x

    x = tokens()
    run_blocks([block] * 4, x, x[:, 0], routing=(leg("random"),))
    run_blocks([block] * 4, x, x[:, 0], routing=(leg("bernoulli"),), fp32=(2,))
    assert heard == [0, 0, 0, 0, 0, 1, 1, 0]


def test_weighted_end_is_observed_first() -> None:
    """REPA aligns what a block gave, not what a decoder or fusion behind it made of it."""

    class Doubled(Return):
        spans = ((1, 3),)

        def __call__(self, kept_BKD: Tensor, route: BatchRoute, **others: Tensor) -> Tensor:
            return 2 * super().__call__(kept_BKD, route, **others)  # type: ignore[arg-type]

    x, c = inputs()
    around = leg("random", 1, 3)
    streams: dict[int, Tensor] = {}
    blocks = stack()[:4]
    out = run_blocks(
        blocks, x, c, routing=(around,), observe=streams.__setitem__, re_enter=Doubled()
    )
    assert streams[3].shape[1] == around.keep_BK.shape[1] < N
    assert torch.equal(gather_tokens(out, around.keep_BK), 2 * streams[3])


@pytest.mark.parametrize("selection", ["random", "importance"])
def test_routed_tokens_pass_gradients_unchanged(selection: str) -> None:
    x, c = inputs()
    x.requires_grad_()
    around = leg(selection, 0, 5)
    out = run_blocks(stack()[:6], x, c, routing=(around,))
    routed = torch.ones(B, N).scatter(1, around.keep_BK, 0.0).bool()
    (grad,) = torch.autograd.grad(out[routed].sum(), x)
    assert torch.equal(grad[routed], torch.ones_like(grad[routed]))
    assert torch.equal(grad[~routed], torch.zeros_like(grad[~routed]))


@pytest.mark.parametrize("strided", [False, True])
def test_rows_equal_elementwise_gather_and_scatter(*, strided: bool) -> None:
    """Bitwise, gradients included, whatever the strides."""
    x_BND = inputs()[0]
    x_BND = (x_BND.mT.contiguous().mT if strided else x_BND).requires_grad_()
    keep_BK = routing_of((0, 1))[0].keep_BK
    index_BKD = keep_BK[:, :, None].expand(-1, -1, D)
    gathered = [gather_tokens(x_BND, keep_BK), x_BND.gather(1, index_BKD)]
    rejoined = [scatter_tokens(x_BND, 2 * gathered[0], keep_BK)]
    rejoined.append(x_BND.scatter(1, index_BKD, 2 * gathered[1]))
    gradients = [torch.autograd.grad(out.square().sum(), x_BND)[0] for out in rejoined]
    for mine, theirs in (gathered, rejoined, gradients):
        assert torch.equal(mine, theirs)
