"""The one loop over blocks that every backbone shares: it sends at a start, merges after an end."""

# B batch, N tokens, K kept tokens, D width, P position coordinates

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from tread_lab.routing.re_entry import IDENTITY, ReEntry
from tread_lab.routing.select import Leg, Routing, whole_routing
from tread_lab.routing.transport import send

Block = Callable[..., Tensor]
Observer = Callable[[int, Tensor], None]


def walk(
    blocks: Iterable[Block],
    x_BND: Tensor,
    c_BD: Tensor,
    positions_BNP: Tensor | None = None,
    *,
    routing: Routing | None = None,
    fp32: Collection[int] = (),
    observe: Observer | None = None,
    re_enter: ReEntry = IDENTITY,
) -> Tensor:
    """Return x_BND after all blocks, with the tokens of `routing` taken around its blocks.

    Args:
        blocks: called as block(x, c, positions) on all tokens or on the kept ones alone; where
            samples keep different numbers also with real_BK, the places that hold a kept token.
        c_BD, positions_BNP: the conditioning; positions, which follow their tokens into a route.
        routing: sequential, disjoint legs; `None` is the dense network.
        fp32: blocks that run without autocast.
        observe: called with (l, residual stream after block l), kept tokens only inside a route;
            a re-entry that is a part of the network comes after it.
        re_enter: makes the stream after a route; by default routed tokens return as they were.
    """
    legs = _legs_by_start(routing, re_enter, x_BND)
    leg, entry_BND, embedded_BND, kept_BKP = None, x_BND, x_BND, positions_BNP
    for l, block in enumerate(blocks):
        if l in legs:
            leg, entry_BND = legs[l], x_BND
            x_BND = send(x_BND, leg.keep_BK)
            kept_BKP = None if positions_BNP is None else send(positions_BNP, leg.keep_BK)
        if x_BND.shape[1]:  # a leg may keep no token: SPRINT's path-drop guidance
            x_BND = _run(block, x_BND, c_BD, kept_BKP, leg, in_fp32=l in fp32)
        after_BND = x_BND
        if leg is not None and l == leg.end:
            around = {"entry_BND": entry_BND, "embedded_BND": embedded_BND, "c_BD": c_BD}
            after_BND, kept_BKP, leg = re_enter(x_BND, leg, **around), positions_BNP, None
        if observe is not None:
            observe(l, x_BND if re_enter.spans else after_BND)
        x_BND = after_BND
    return x_BND


def _legs_by_start(routing: Routing | None, re_enter: ReEntry, x_BND: Tensor) -> dict[int, Leg]:
    """Return the legs by their first block; a dense pass has legs if an end has weights."""
    if routing is None and re_enter.spans:
        routing = whole_routing(re_enter.spans, x_BND)
    legs = {leg.start: leg for leg in routing or ()}
    spans = {(leg.start, leg.end) for leg in legs.values()}
    assert not re_enter.spans or spans == {*re_enter.spans}
    return legs


def _run(
    block: Block, x: Tensor, c: Tensor, positions: Tensor | None, leg: Leg | None, *, in_fp32: bool
) -> Tensor:
    real = () if leg is None or leg.real_BK is None else (leg.real_BK,)
    if not in_fp32:
        return block(x, c, positions, *real)
    with torch.autocast(x.device.type, enabled=False):
        return block(x.float(), c.float(), positions, *real)
