"""Claims about TREAD itself: exact counts, nested selections, bitwise transport, one loop."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from tread_lab import draws
from tread_lab.routing import BatchRoute, Return, draw_routing, run_blocks, select
from tread_lab.routing.transport import gather_tokens, scatter_tokens
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


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25, 0.29, 0.5, 0.75, 0.99])
def test_exactly_floor_s_n_tokens_are_routed(rate: float) -> None:
    leg = select(route(2, 8, rate), draws.uniform((B, N), "x"))
    assert leg.keep_BK.shape == (B, N - int(N * rate + 1e-9))
    assert all(len(set(row.tolist())) == len(row) for row in leg.keep_BK)
    assert torch.equal(leg.keep_BK, leg.keep_BK.sort(dim=1).values)


def test_a_larger_rate_routes_a_superset() -> None:
    rank = draws.uniform((B, N), "x")
    kept = [select(route(2, 8, rate), rank).keep_BK for rate in (0.1, 0.25, 0.5, 0.75)]
    for more, fewer in pairwise(kept):
        for a, b in zip(more, fewer):
            assert set(b.tolist()) < set(a.tolist())


def test_every_place_is_routed_equally_often() -> None:
    draws_of = 4000
    keep = select(route(0, 1, 0.25), draws.uniform((draws_of, N), "marginals")).keep_BK
    frequency = torch.bincount(keep.flatten(), minlength=N) / draws_of
    deviation = (0.25 * 0.75 / draws_of) ** 0.5
    assert (frequency - 0.75).abs().max() < 4.5 * deviation


def test_samples_are_routed_independently() -> None:
    keep = select(route(0, 1, 0.5), draws.uniform((2000, N), "independence")).keep_BK
    kept = torch.zeros(2000, N).scatter(1, keep, 1.0)
    both = (kept[0::2] * kept[1::2]).mean(0)  # two neighbours keep the same place
    assert (both - 0.25).abs().max() < 4.5 * (0.25 * 0.75 / 1000) ** 0.5
    assert len({tuple(row.tolist()) for row in keep}) == 2000


def test_the_ranking_depends_on_seed_step_and_route_number_alone() -> None:
    def keep(seed: int, step: int, routes: list[RouteSpec]) -> list[Tensor]:
        routing = draw_routing(routes, (B, N), seed, step)
        assert routing is not None
        return [leg.keep_BK for leg in routing]

    one = [route(2, 8, 0.5)]
    assert torch.equal(keep(0, 7, one)[0], keep(0, 7, one)[0])
    assert torch.equal(keep(0, 7, one)[0], keep(0, 7, [route(0, 3, 0.5)])[0])
    assert not torch.equal(keep(0, 7, one)[0], keep(0, 8, one)[0])
    assert not torch.equal(keep(0, 7, one)[0], keep(1, 7, one)[0])
    two = keep(0, 7, [route(0, 3, 0.5), route(5, 8, 0.5)])
    assert torch.equal(two[0], keep(0, 7, one)[0]) and not torch.equal(two[0], two[1])


def test_send_then_merge_gives_back_every_token() -> None:
    x, _ = inputs()
    leg = select(route(0, 1, 0.5), draws.uniform((B, N), "x"))
    assert torch.equal(scatter_tokens(x, gather_tokens(x, leg.keep_BK), leg.keep_BK), x)


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


def test_positions_follow_their_tokens() -> None:
    x, c = inputs()
    positions = torch.arange(N).expand(B, N)[..., None]
    seen = []

    def block(x_BND: Tensor, c_BD: Tensor, positions_BNP: Tensor | None) -> Tensor:
        seen.append(positions_BNP)
        return x_BND

    leg = select(route(1, 2, 0.5), draws.uniform((B, N), "x"))
    run_blocks([block] * 4, x, c, positions, routing=(leg,))
    assert torch.equal(seen[1][..., 0], leg.keep_BK) and torch.equal(seen[2], seen[1])
    assert torch.equal(seen[0], positions) and torch.equal(seen[3], positions)


def test_gradients_reach_the_entry_through_routed_tokens_by_the_identity() -> None:
    x, c = inputs()
    x.requires_grad_()
    leg = select(route(0, 5, 0.5), draws.uniform((B, N), "x"))
    out = run_blocks(stack(), x, c, routing=(leg,))
    routed = torch.ones(B, N).scatter(1, leg.keep_BK, 0.0).bool()
    (grad,) = torch.autograd.grad(out[routed].sum(), x)
    assert torch.equal(grad[routed], torch.ones_like(grad[routed]))
    assert torch.equal(grad[~routed], torch.zeros_like(grad[~routed]))
