"""The one loop over blocks that every backbone shares: it sends at a start, merges after an end."""

# B batch, N tokens, K kept tokens, D width, P position coordinates

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from tread_lab.routing.rejoin import IDENTITY, Rejoin, gather_tokens
from tread_lab.routing.select import BatchRoute, Routing, whole_routing

Block = Callable[..., Tensor]
Observer = Callable[[int, Tensor], None]


def run_blocks(
    blocks: Iterable[Block],
    x_BND: Tensor,
    c_BD: Tensor,
    positions_BNP: Tensor | None = None,
    *,
    routing: Routing | None = None,
    fp32: Collection[int] = (),
    observe: Observer | None = None,
    re_enter: Rejoin = IDENTITY,
) -> Tensor:
    """Return x_BND after all blocks; routed tokens skip the blocks of their route.

    Args:
        blocks: called as block(x, c, positions) on all or only the kept tokens; also with real_BK,
            the mask of kept tokens, if samples keep different numbers.
        c_BD, positions_BNP: the conditioning, and the positions of the tokens.
        routing: sequential, disjoint routes; `None` is the dense network.
        fp32: blocks that run without autocast.
        observe: called with (l, residual stream after block l), before a trained re-entry; inside a
            route with kept tokens only.
        re_enter: computes the stream after a route; by default routed tokens return unchanged.
    """
    routes = _by_start(routing, re_enter, x_BND)
    route, entry_BND, embedded_BND, kept_BKP = None, x_BND, x_BND, positions_BNP
    for l, block in enumerate(blocks):
        if l in routes:
            route, entry_BND = routes[l], x_BND
            route.choose(x_BND)
            x_BND = gather_tokens(x_BND, route.keep_BK)
            kept_BKP = (
                None if positions_BNP is None else gather_tokens(positions_BNP, route.keep_BK)
            )
        if x_BND.shape[1]:  # a route may keep no token: SPRINT's path-drop guidance
            x_BND = _run(block, x_BND, c_BD, kept_BKP, route, in_fp32=l in fp32)
        after_BND = x_BND
        if route is not None and l == route.end:
            around = {"entry_BND": entry_BND, "embedded_BND": embedded_BND, "c_BD": c_BD}
            after_BND, kept_BKP, route = re_enter(x_BND, route, **around), positions_BNP, None
        if observe is not None:
            observe(l, x_BND if re_enter.spans else after_BND)
        x_BND = after_BND
    return x_BND


def _by_start(routing: Routing | None, re_enter: Rejoin, x_BND: Tensor) -> dict[int, BatchRoute]:
    """Return the routes by their first block; a dense pass has some if an end has weights."""
    if routing is None and re_enter.spans:
        routing = whole_routing(re_enter.spans, x_BND)
    routes = {route.start: route for route in routing or ()}
    spans = {(route.start, route.end) for route in routes.values()}
    assert not re_enter.spans or spans == {*re_enter.spans}
    return routes


def _run(
    block: Block,
    x: Tensor,
    c: Tensor,
    positions: Tensor | None,
    route: BatchRoute | None,
    *,
    in_fp32: bool,
) -> Tensor:
    real = () if route is None or route.real_BK is None else (route.real_BK,)
    if not in_fp32:
        return block(x, c, positions, *real)
    with torch.autocast(x.device.type, enabled=False):
        return block(x.float(), c.float(), positions, *real)
