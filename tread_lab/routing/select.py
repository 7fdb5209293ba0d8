"""Which tokens a route takes: an exact count by rank, so that a larger rate routes a superset."""

# B batch, N tokens, K kept tokens

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.spec.routes import RouteSpec


@dataclass(frozen=True)
class Leg:
    """One route for one batch: the tokens in `keep_BK` run blocks start..end, the rest skip them.

    Attributes:
        start, end: first and last block that routed tokens skip, both inclusive.
        keep_BK: places of the kept tokens, ascending within each sample.
    """

    start: int
    end: int
    keep_BK: Tensor

    def to(self, device: torch.device) -> Leg:
        return Leg(self.start, self.end, self.keep_BK.to(device, non_blocking=True))


RoutePlan = tuple[Leg, ...]


def select(route: RouteSpec, rank_BN: Tensor) -> Leg:
    """The leg of `route`: of every sample the floor(s N) tokens of lowest rank are routed.

    Args:
        rank_BN: one number per token; equal numbers at two rates give nested selections.
    """
    N = rank_BN.shape[1]
    order_BN = rank_BN.argsort(dim=1)
    keep_BK = order_BN[:, route.routed(N) :].sort(dim=1).values
    return Leg(route.blocks[0], route.blocks[-1], keep_BK)


def draw_plan(
    routes: Sequence[RouteSpec], shape: tuple[int, int], *key: int | str
) -> RoutePlan | None:
    """A plan for a batch of `shape` (B, N); route k ranks by the stream (key, "route", k).

    The stream is named by the route's number, not by its blocks, so that all placements of a sweep
    route the same tokens at the same (seed, step).
    """
    legs = tuple(select(r, draws.uniform(shape, *key, "route", k)) for k, r in enumerate(routes))
    return legs or None
