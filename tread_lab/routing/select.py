"""Which tokens a route takes: an exact count by rank, so that a larger rate routes a superset."""

# B batch, N tokens, K kept tokens, U units, V kept units, T tokens of a unit

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
        real_BK: where samples keep different numbers: which places are kept; the others, at the
            end, are routed tokens that fill up. Absent where all places are kept.
        dropped_B: samples whose way through the blocks counts for nothing (SPRINT's path-drop).
    """

    start: int
    end: int
    keep_BK: Tensor
    real_BK: Tensor | None = None
    dropped_B: Tensor | None = None

    def to(self, device: torch.device) -> Leg:
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def rows(self, rows: slice) -> Leg:
        """The same leg for some samples of the batch."""
        return self._each(lambda tensor: tensor[rows])

    def mask(self, N: int) -> Tensor:
        """m_BN in {0, 1}: 1 where a token is routed."""
        kept_BK = torch.ones_like(self.keep_BK) if self.real_BK is None else self.real_BK
        m_BN = torch.ones(len(self.keep_BK), N, device=self.keep_BK.device)
        return m_BN.scatter(1, self.keep_BK, 1.0 - kept_BK.float())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Leg:
        """The same leg with every tensor changed."""
        tensors = (self.keep_BK, self.real_BK, self.dropped_B)
        changed = (None if tensor is None else change(tensor) for tensor in tensors)
        return Leg(self.start, self.end, *changed)  # type: ignore[arg-type]


RoutePlan = tuple[Leg, ...]


def select(route: RouteSpec, rank_BN: Tensor) -> Leg:
    """The leg of `route`: of every sample the units (tokens, rows, groups) of lowest rank go.

    Args:
        rank_BN: one number in [0, 1) per token; equal numbers at two rates give nested selections.
            A unit has the rank of its first token.
    """
    start, end = route.blocks[0], route.blocks[-1]
    if route.selection == "bernoulli":
        return Leg(start, end, *_independent(route.rate, rank_BN))
    units_UT = _units(route, rank_BN.shape[1]).to(rank_BN.device)
    order_BU = rank_BN[:, units_UT[:, 0]].argsort(dim=1)
    routed = route.routed(rank_BN.shape[1]) // units_UT.shape[1]
    keep_BK = units_UT[order_BU[:, routed:]].flatten(1).sort(dim=1).values
    return Leg(start, end, keep_BK)


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


def _units(route: RouteSpec, tokens: int) -> Tensor:
    """The tokens that leave together, units_UT, on a square grid in raster order."""
    side = math.isqrt(tokens)
    grid = torch.arange(tokens)
    if route.selection == "groups":
        return grid.view(side // 2, 2, side // 2, 2).transpose(1, 2).reshape(-1, 4)
    return grid.view(-1, route.unit(tokens))


def _independent(rate: float, rank_BN: Tensor) -> tuple[Tensor, Tensor]:
    """Each token routed where its rank is below `rate`: (keep_BK, real_BK), K the most kept.

    The token of highest rank always stays, so that no sample is empty.
    """
    kept_BN = (rank_BN >= rate).scatter(1, rank_BN.argmax(dim=1, keepdim=True), True)
    places_BN = kept_BN.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    K = int(kept_BN.sum(dim=1).max())
    return places_BN[:, :K], kept_BN.gather(1, places_BN[:, :K])
