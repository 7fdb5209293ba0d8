"""Which tokens of a generated image are routed: ranked by the image's own seed."""

# B batch, N tokens, K kept tokens

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tread_lab import draws
from tread_lab.routing.select import BatchRoute, Routing, select
from tread_lab.specs.routes import RouteSpec


class ImageRoutes:
    """Routings of a batch of images at any rate, fresh at every noise level as in training.

    Both branches of a sum rank alike, so the weak one routes a superset of the strong one's tokens.
    """

    def __init__(
        self, routes: Sequence[RouteSpec], tokens: int, seeds: Sequence[int], device: torch.device
    ) -> None:
        self.routes, self.tokens, self.seeds, self.device = routes, tokens, seeds, device
        self._ranked: tuple[int, list[Tensor]] = (-1, [])

    def dropped(self) -> Routing:
        """Return the routing that keeps no token, so that no routed block runs (path-drop)."""
        keep_B0 = torch.empty(len(self.seeds), 0, dtype=torch.long, device=self.device)
        return tuple(BatchRoute(r.blocks[0], r.blocks[-1], keep_B0) for r in self.routes)

    def routing(self, rate: float, index: int) -> Routing | None:
        """Return the routing at `rate` for noise level `index`; `None` if no token is routed."""
        routes = [replace(route, rate=rate) for route in self.routes]
        if not any(route.routed(self.tokens) for route in routes):
            return None
        return tuple(select(r, rank).to(self.device) for r, rank in zip(routes, self._ranks(index)))

    def _ranks(self, index: int) -> list[Tensor]:
        """One ranking per route, kept for the other branch and the solver's second call."""
        if self._ranked[0] != index:
            self._ranked = (index, [self._rank_BN(k, index) for k in range(len(self.routes))])
        return self._ranked[1]

    def _rank_BN(self, route: int, index: int) -> Tensor:
        shape, key = (self.tokens,), ("route", route, index)
        return torch.stack([draws.uniform(shape, "image", seed, *key) for seed in self.seeds])
