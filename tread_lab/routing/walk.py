"""The one loop over blocks that every backbone shares: it sends at a start, merges after an end."""

# B batch, N tokens, K kept tokens, D width, P position coordinates

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
from torch import Tensor

from tread_lab.routing.select import RoutePlan
from tread_lab.routing.transport import merge, send

Block = Callable[..., Tensor]
Observer = Callable[[int, Tensor], None]


def walk(
    blocks: Iterable[Block],
    x_BND: Tensor,
    c_BD: Tensor,
    positions_BNP: Tensor | None = None,
    *,
    plan: RoutePlan | None = None,
    fp32: Collection[int] = (),
    observe: Observer | None = None,
) -> Tensor:
    """x_BND after all blocks, with some tokens taken around some blocks by `plan`.

    Args:
        blocks: called as block(x, c, positions) on all tokens or on the kept ones alone; where
            samples keep different numbers also with real_BK, the places that hold a kept token.
        c_BD: the conditioning of each sample.
        positions_BNP: positions of the tokens; they follow their tokens into a route.
        plan: sequential, disjoint legs; None is the dense network.
        fp32: blocks that run without autocast.
        observe: called with (l, residual stream after block l), kept tokens only inside a route.
    """
    starts = {leg.start: leg for leg in plan or ()}
    leg, entry_BND, here = None, x_BND, positions_BNP
    for l, block in enumerate(blocks):
        if l in starts:
            leg, entry_BND = starts[l], x_BND
            x_BND = send(x_BND, leg.keep_BK)
            here = None if positions_BNP is None else send(positions_BNP, leg.keep_BK)
        real = () if leg is None or leg.real_BK is None else (leg.real_BK,)
        x_BND = _run(block, x_BND, c_BD, here, *real, in_fp32=l in fp32)
        if leg is not None and l == leg.end:
            x_BND, here = merge(entry_BND, x_BND, leg.keep_BK, leg.real_BK), positions_BNP
            leg = None
        if observe is not None:
            observe(l, x_BND)
    return x_BND


def _run(
    block: Block, x: Tensor, c: Tensor, positions: Tensor | None, *real: Tensor, in_fp32: bool
) -> Tensor:
    if not in_fp32:
        return block(x, c, positions, *real)
    with torch.autocast(x.device.type, enabled=False):
        return block(x.float(), c.float(), positions, *real)
