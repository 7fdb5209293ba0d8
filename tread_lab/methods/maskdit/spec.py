"""MaskDiT in a run's spec: the bypass `mask`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tread_lab.config.decode import Count
from tread_lab.config.errors import UserError
from tread_lab.config.routes import Bypass, RouteSpec
from tread_lab.config.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class MaskBypass(Bypass):
    """MaskDiT (Zheng et al. 2024): all blocks see the kept tokens, a light decoder all places.

    The route is the whole network, 0->B-1; its tokens are masked. The decoder is part of the
    sampled network. MaskDiT trains it with `loss: {kind: ensemble, form: code}`.

    Attributes:
        depth, width, heads: the decoder; 8 blocks of width 512 beside XL.
        adapter: initialization of the map between the widths: `zero` as in the published code (the
            decoder first sees only mask tokens and positions), or `xavier`.
        fill: decoder input at masked places: the trained `mask_token`, or the tokens as they
            entered block 0 (`entry`), for which training and sampling agree, as in SD-DiT (Zhu et
            al. 2024).
    """

    system: ClassVar[str] = "maskdit"
    encodes: ClassVar[bool] = True

    kind: Literal["mask"] = "mask"
    depth: Count = 8
    width: Count = 512
    heads: Count = 16
    adapter: Literal["zero", "xavier"] = "zero"
    fill: Literal["mask_token", "entry"] = "mask_token"

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 4:
            raise UserError(
                f"width: must be a multiple of 4 and of {self.heads} heads, got {self.width}"
            )

    def __str__(self) -> str:
        filled = "" if self.fill == "mask_token" else f" {self.fill}"
        return f"mask {self.depth}x{self.width}{filled}"

    def weights(self, routes: Sequence[RouteSpec]) -> object:
        return dataclasses.replace(self, adapter="zero")

    def resolved(self, run: RunSpec) -> MaskBypass:
        route = self.one_route(run.routes)
        if len(route.blocks) != run.model.depth:
            raise UserError(f"bypass: mask requires routes: [0->B-1], got {route}")
        return self
