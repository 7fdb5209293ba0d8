"""Which tokens a route takes: an exact count by rank, so that a larger rate routes a superset."""

# B batch, N tokens, K kept tokens

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
        dropped_B: samples whose way through the blocks counts for nothing (SPRINT's path-drop).
    """

    start: int
    end: int
    keep_BK: Tensor
    dropped_B: Tensor | None = None

    def to(self, device: torch.device) -> Leg:
        dropped_B = self.dropped_B
        if dropped_B is not None:
            dropped_B = dropped_B.to(device, non_blocking=True)
        return Leg(self.start, self.end, self.keep_BK.to(device, non_blocking=True), dropped_B)

    def rows(self, rows: slice) -> Leg:
        """The same leg for some samples of the batch."""
        dropped_B = None if self.dropped_B is None else self.dropped_B[rows]
        return Leg(self.start, self.end, self.keep_BK[rows], dropped_B)

    def mask(self, N: int) -> Tensor:
        """m_BN in {0, 1}: 1 where a token is routed."""
        B = len(self.keep_BK)
        return torch.ones(B, N, device=self.keep_BK.device).scatter(1, self.keep_BK, 0.0)


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
    routes: Sequence[RouteSpec], shape: tuple[int, int], *key: int | str, path_drop: float = 0.0
) -> RoutePlan | None:
    """A plan for a batch of `shape` (B, N); route k ranks by the stream (key, "route", k).

    The stream is named by the route's number, not by its blocks, so that all placements of a sweep
    route the same tokens at the same (seed, step).

    Args:
        path_drop: probability that a sample's way through the routes counts for nothing.
    """
    legs = tuple(select(r, draws.uniform(shape, *key, "route", k)) for k, r in enumerate(routes))
    if path_drop > 0:
        dropped_B = draws.uniform(shape[:1], *key, "path_drop") < path_drop
        legs = tuple(replace(leg, dropped_B=dropped_B) for leg in legs)
    return legs or None


def whole_plan(spans: Iterable[tuple[int, int]], x_BND: Tensor) -> RoutePlan | None:
    """Legs that keep every token: the dense pass through a network whose routes have an end of
    their own."""
    B, N, _ = x_BND.shape
    keep_BN = torch.arange(N, device=x_BND.device).expand(B, N)
    return tuple(Leg(start, end, keep_BN) for start, end in spans) or None
