"""Claims about TREAD itself: exact counts, nested selections, bitwise transport, one loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.routing import BatchRoute, Return, run_blocks, select
from tread_lab.routing.rejoin import gather_tokens, scatter_tokens
from tread_lab.specs.routes import RouteSpec

B, N, D = 4, 64, 8


class Recorder(nn.Module):
    """A token-wise or mixing map that remembers what entered and left it."""

    def __init__(self, *, mixing: bool) -> None:
        super().__init__()
        self.map, self.mixing = nn.Linear(D, D), mixing
        self.seen: list[Tensor] = []

    def forward(self, x_BND: Tensor, c_BD: Tensor, positions: Tensor | None = None) -> Tensor:
        self.seen.append(x_BND)
        mixed = x_BND.mean(1, keepdim=True) if self.mixing else 0
        return x_BND + torch.tanh(self.map(x_BND) + mixed) + c_BD[:, None]


def route(start: int, end: int, rate: float) -> RouteSpec:
    return RouteSpec(start=start, end=end, rate=rate).resolved(12)


def stack(depth: int = 6) -> list[Recorder]:
    torch.manual_seed(0)
    return [Recorder(mixing=True) for _ in range(depth)]


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(B, N, D), torch.randn(B, D)


def test_rate_zero_and_no_plan_are_the_dense_network() -> None:
    x, c = inputs()
    blocks = stack()
    dense = run_blocks(blocks, x, c)
    leg = select(route(1, 3, 0.0), draws.uniform((B, N), "x"))
    assert torch.equal(run_blocks(blocks, x, c, routing=(leg,)), dense)
    assert torch.equal(run_blocks(blocks, x, c, routing=None), dense)


class Skipped(Recorder):
    """A block that adds what a skip brings it, and remembers it."""

    def forward(
        self,
        x_BND: Tensor,
        c_BD: Tensor,
        positions: Tensor | None = None,
        *,
        skip: Tensor,
    ) -> Tensor:
        self.skip = skip
        return super().forward(x_BND + skip, c_BD, positions)


@pytest.mark.parametrize(("source", "target"), [(0, 2), (0, 5), (2, 3), (2, 5), (3, 4), (3, 5)])
def test_a_skip_brings_a_block_its_own_tokens_as_they_left_the_earlier_block(
    source: int, target: int
) -> None:
    """The route is 1->3: a token that was routed left its blocks as it entered the route."""
    x, c = inputs()
    blocks = stack()
    blocks[target] = skipped = Skipped(mixing=True)
    streams: dict[int, Tensor] = {}
    leg = select(route(1, 3, 0.5), draws.uniform((B, N), "x"))
    more = {"observe": streams.__setitem__, "skips": {target: source}}
    run_blocks(blocks, x, c, routing=(leg,), **more)  # type: ignore[arg-type]
    left = streams[source]
    if 1 <= source < 3:
        left = scatter_tokens(streams[0], left, leg.keep_BK)
    assert torch.equal(skipped.skip, gather_tokens(left, leg.keep_BK) if target <= 3 else left)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 3), (2, 2), (3, 5)])
def test_routed_tokens_leave_a_route_bitwise_as_they_entered(start: int, end: int) -> None:
    x, c = inputs()
    streams: dict[int, Tensor] = {}
    leg = select(route(start, end, 0.5), draws.uniform((B, N), "x"))
    run_blocks(stack(), x, c, routing=(leg,), observe=streams.__setitem__)
    entered = x if start == 0 else streams[start - 1]
    routed = torch.ones(B, N).scatter(1, leg.keep_BK, 0.0).bool()
    assert torch.equal(streams[end][routed], entered[routed])
    assert not torch.equal(streams[end][~routed], entered[~routed])


def test_an_end_with_weights_is_observed_before_it_acts() -> None:
    """REPA aligns what a block gave, not what a decoder or fusion behind it made of it."""

    class Doubled(Return):
        spans = ((1, 3),)

        def __call__(self, kept_BKD: Tensor, leg: BatchRoute, **around: Tensor) -> Tensor:
            return 2 * super().__call__(kept_BKD, leg, **around)  # type: ignore[arg-type]

    x, c = inputs()
    leg = select(route(1, 3, 0.5), draws.uniform((B, N), "x"))
    streams: dict[int, Tensor] = {}
    blocks = stack()[:4]
    out = run_blocks(blocks, x, c, routing=(leg,), observe=streams.__setitem__, re_enter=Doubled())
    assert streams[3].shape[1] == leg.keep_BK.shape[1] < N
    assert torch.equal(gather_tokens(out, leg.keep_BK), 2 * streams[3])


def test_kept_tokens_are_those_of_the_blocks_run_on_the_subset_alone() -> None:
    x, c = inputs()
    blocks = stack()
    leg = select(route(1, 3, 0.5), draws.uniform((B, N), "x"))
    streams: dict[int, Tensor] = {}
    run_blocks(blocks, x, c, routing=(leg,), observe=streams.__setitem__)
    alone = gather_tokens(blocks[0](x, c), leg.keep_BK)
    for block in blocks[1:4]:
        alone = block(alone, c)
    assert torch.equal(gather_tokens(streams[3], leg.keep_BK), alone)


def test_blocks_of_a_route_see_kept_tokens_only_and_the_others_all() -> None:
    x, c = inputs()
    blocks = stack()
    legs = (
        select(route(0, 1, 0.5), draws.uniform((B, N), "a")),
        select(route(3, 4, 0.75), draws.uniform((B, N), "b")),
    )
    run_blocks(blocks, x, c, routing=legs)
    assert [b.seen[0].shape[1] for b in blocks] == [32, 32, 64, 16, 16, 64]


def test_gradients_reach_the_entry_through_routed_tokens_by_the_identity() -> None:
    x, c = inputs()
    x.requires_grad_()
    leg = select(route(0, 5, 0.5), draws.uniform((B, N), "x"))
    out = run_blocks(stack(), x, c, routing=(leg,))
    routed = torch.ones(B, N).scatter(1, leg.keep_BK, 0.0).bool()
    (grad,) = torch.autograd.grad(out[routed].sum(), x)
    assert torch.equal(grad[routed], torch.ones_like(grad[routed]))
    assert torch.equal(grad[~routed], torch.zeros_like(grad[~routed]))
