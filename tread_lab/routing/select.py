"""Which tokens a route takes: an exact count by rank, so that a larger rate routes a superset."""

# B batch, N tokens, K kept tokens, R rows, C columns, W windows of T tokens

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.config import routes
from tread_lab.config.errors import UserError
from tread_lab.config.registry import Registry
from tread_lab.config.routes import RouteSpec

LENGTHS = 16  # where a selection keeps ever other numbers of tokens, K is a multiple of this


@dataclass(frozen=True)
class BatchRoute:
    """One route for one batch: the tokens in `keep_BK` run blocks start..end, the rest skip them.

    Attributes:
        start, end: first and last block that routed tokens skip, both inclusive.
        keep_BK: places of the kept tokens, ascending within each sample.
        real_BK: mask of `keep_BK` if samples keep different numbers of tokens: true for kept
            tokens, false for padding by routed tokens. `None` if all are kept.
        dropped_B: samples whose path through the blocks is dropped (SPRINT's path-drop).
        rank_BN, l1: draw and weight of a selection by importance, which writes `keep_BK` when the
            tokens enter the route; `None` for other selections.
    """

    start: int
    end: int
    keep_BK: Tensor
    real_BK: Tensor | None = None
    dropped_B: Tensor | None = None
    rank_BN: Tensor | None = None
    l1: float = 0.0

    def to(self, device: torch.device) -> BatchRoute:
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def beside(self, N: int, T: int) -> BatchRoute:
        """Return the route of a stream with T further tokens after the N, all kept."""
        texts_BT = torch.arange(N, N + T, device=self.keep_BK.device).expand(len(self.keep_BK), T)
        real_BK = self.real_BK
        if real_BK is not None:
            real_BK = torch.cat([real_BK, torch.ones_like(texts_BT, dtype=torch.bool)], dim=1)
        return replace(self, keep_BK=torch.cat([self.keep_BK, texts_BT], dim=1), real_BK=real_BK)

    def whole(self, N: int) -> bool:
        """Return whether every one of N tokens is kept."""
        return self.real_BK is None and self.keep_BK.shape[1] == N

    def mask(self, N: int) -> Tensor:
        """m_BN in {0, 1}: 1 where a token is routed."""
        kept_BK = torch.ones_like(self.keep_BK) if self.real_BK is None else self.real_BK
        m_BN = torch.ones(len(self.keep_BK), N, device=self.keep_BK.device)
        return m_BN.scatter(1, self.keep_BK, 1.0 - kept_BK.float())

    def each(self, change: Callable[[Tensor], Tensor]) -> BatchRoute:
        """Return the same route with every tensor changed."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        changed: dict[str, Any] = {name: change(x) for name, x in tensors.items()}
        return replace(self, **changed)

    def choose(self, x_BND: Tensor) -> None:
        """Select tokens of x_BND by importance and write the kept ones into `keep_BK`, in place, so
        that losses over kept tokens use them. The selection has no gradient."""
        if self.rank_BN is None:
            return
        norm_BN, w = x_BND.detach().float().abs().sum(dim=2), abs(self.l1)
        low_B1, high_B1 = norm_BN.aminmax(dim=1, keepdim=True)
        m_BN = (norm_BN - low_B1) / (high_B1 - low_B1 + 1e-8)  # as the first code
        mixed_BN = (1 - w) * self.rank_BN + w * (m_BN if self.l1 > 0 else 1 - m_BN)
        highest_BK = mixed_BN.topk(self.keep_BK.shape[1], dim=1).indices
        self.keep_BK.copy_(highest_BK.sort(dim=1).values)


Routing = tuple[BatchRoute, ...]
Kept = tuple[Tensor, Tensor | None]  # keep_BK and real_BK of a route


def select(route: RouteSpec, rank_BN: Tensor) -> BatchRoute:
    """Select the kept tokens of `route` for a batch, by rank.

    Args:
        rank_BN: one number in [0, 1) per token; tokens of low rank are routed first, so equal
            ranks at two rates give nested selections.
    """
    keep_BK, real_BK = SELECTIONS[route.selection](route, rank_BN)
    if route.selection not in routes.SELECTIONS.built_in:
        _check_kept(route, keep_BK, real_BK, tuple(rank_BN.shape))
    leg = BatchRoute(route.blocks[0], route.blocks[-1], keep_BK, real_BK)
    return replace(leg, rank_BN=rank_BN, l1=route.l1) if route.selection == "importance" else leg


def _check_kept(
    route: RouteSpec, keep_BK: Tensor, real_BK: Tensor | None, shape: tuple[int, ...]
) -> None:
    """Refuse what a plugin selects where it is not what the plan's FLOPs are counted for.

    Raises:
        UserError: names the selection.
    """
    B, N = shape
    kept, wrong = N - route.routed(N), ""
    if keep_BK.dtype != torch.int64 or keep_BK.ndim != 2 or len(keep_BK) != B:
        wrong = f"places are int64 [{B}, K], got {keep_BK.dtype} {[*keep_BK.shape]}"
    elif real_BK is None and keep_BK.shape[1] != kept:
        wrong = f"it keeps {keep_BK.shape[1]} of {N} tokens; a rate of {route.rate:g} keeps {kept}"
    elif keep_BK.numel() and not (0 <= int(keep_BK.min()) <= int(keep_BK.max()) < N):
        wrong = f"a place lies outside 0..{N - 1}"
    elif bool((keep_BK.diff(dim=1) <= 0).any()):
        wrong = "places must ascend within a sample, none twice"
    elif real_BK is not None and (real_BK.dtype != torch.bool or real_BK.shape != keep_BK.shape):
        wrong = f"real_BK is bool {[*keep_BK.shape]}, got {real_BK.dtype} {[*real_BK.shape]}"
    if wrong:
        raise UserError(f"selection: {route.selection!r} cannot be used: {wrong}")


def draw_routing(
    routes: Sequence[RouteSpec], shape: tuple[int, int], *key: int | str, path_drop: float = 0.0
) -> Routing | None:
    """Return the routing of a batch (B, N); route k ranks by the stream (key, "route", k).

    The stream is named by the route's number, not by its blocks, so that all placements of a sweep
    route the same tokens at the same (seed, step).

    Args:
        path_drop: probability that a sample's path through the routes is dropped.
    """
    legs = tuple(select(r, draws.uniform(shape, *key, "route", k)) for k, r in enumerate(routes))
    if path_drop > 0:
        dropped_B = draws.uniform(shape[:1], *key, "path_drop") < path_drop
        legs = tuple(replace(leg, dropped_B=dropped_B) for leg in legs)
    return legs or None


def dense_routing(
    routes: Sequence[RouteSpec], shape: tuple[int, int], *key: int | str, path_drop: float
) -> Routing | None:
    """Return the routing of a dense batch (B, N) in which some samples lose their deep path.

    The samples equal those of `draw_routing` with the same key.
    """
    if path_drop == 0:
        return None
    keep_BN = torch.arange(shape[1]).expand(shape)
    dropped_B = draws.uniform(shape[:1], *key, "path_drop") < path_drop
    return tuple(
        BatchRoute(r.blocks[0], r.blocks[-1], keep_BN, dropped_B=dropped_B) for r in routes
    )


def whole_routing(spans: Iterable[tuple[int, int]], x_BND: Tensor) -> Routing | None:
    """Return routes that keep every token: the dense pass where a route's end has weights."""
    B, N, _ = x_BND.shape
    keep_BN = torch.arange(N, device=x_BND.device).expand(B, N)
    return tuple(BatchRoute(start, end, keep_BN) for start, end in spans) or None


def _random(route: RouteSpec, rank_BN: Tensor) -> Kept:
    """Route the tokens of lowest rank."""
    order_BN = rank_BN.argsort(dim=1)
    return order_BN[:, route.routed(rank_BN.shape[1]) :].sort(dim=1).values, None


def _rows(route: RouteSpec, rank_BN: Tensor) -> Kept:
    """Route the rows whose first token has the lowest rank."""
    N = rank_BN.shape[1]
    C = math.isqrt(N)
    order_BR = rank_BN[:, ::C].argsort(dim=1)
    kept_BR = order_BR[:, route.routed(N) // C :].sort(dim=1).values
    columns_C = torch.arange(C, device=rank_BN.device)
    return (kept_BR[:, :, None] * C + columns_C).flatten(1), None


def _structured(route: RouteSpec, rank_BN: Tensor) -> Kept:
    """Route the token of lowest rank of every 2 x 2 window, then the second of each, and so on.

    Where a rate is a quarter, every window keeps equally many tokens, as in SPRINT; where it is
    not, the windows whose next token has the lowest rank keep one token less than the others.
    """
    N = rank_BN.shape[1]
    C = math.isqrt(N)
    places_WT = torch.arange(N).view(C // 2, 2, C // 2, 2).transpose(1, 2).reshape(-1, 4)
    places_N = places_WT.flatten().to(rank_BN.device)
    rank_BWT = rank_BN[:, places_N].view(-1, *places_WT.shape)
    turn_BWT = rank_BWT.argsort(dim=2).argsort(dim=2) + rank_BWT.double()
    return _random(route, turn_BWT.flatten(1)[:, places_N.argsort()])


def _bernoulli(route: RouteSpec, rank_BN: Tensor) -> Kept:
    """Route each token whose rank is below the rate; K is the most that a sample keeps, rounded up.

    The token of highest rank always stays, so that no sample is empty. K is a multiple of `LENGTHS`
    or N: a compiler and a graph make each length anew, and a draw has dozens. All N stay in order.
    """
    highest_B1 = rank_BN.argmax(dim=1, keepdim=True)
    kept_BN = (rank_BN >= route.rate).scatter(1, highest_B1, True)
    places_BN = kept_BN.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    most, N = int(kept_BN.sum(dim=1).max()), rank_BN.shape[1]
    K = math.ceil(most / LENGTHS) * LENGTHS
    places_BK = places_BN.sort(dim=1).values if K >= N else places_BN[:, :K]
    return places_BK, kept_BN.gather(1, places_BK)


SELECTIONS: Registry[Callable[[RouteSpec, Tensor], Kept]] = Registry(
    "selection",
    {
        "random": _random,
        "rows": _rows,
        "structured": _structured,
        "bernoulli": _bernoulli,
        "importance": _random,  # until the tokens are there: `BatchRoute.choose`
    },
    routes.SELECTIONS,
)
