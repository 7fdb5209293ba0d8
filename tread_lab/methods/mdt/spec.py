"""MDT in a run's spec: the bypass `mdt` and the loss `both`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tread_lab.config.decode import Positive
from tread_lab.config.errors import UserError
from tread_lab.config.recipe import Loss
from tread_lab.config.routes import Bypass, RouteSpec, spans_of
from tread_lab.config.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class MdtBypass(Bypass):
    """MDT (Gao et al. 2023): masked latent modelling with a side-interpolater.

    The route begins at block 0 and ends before the decoder blocks: 0->B-3 leaves the two of the
    published code. After it a mask token fills the places of masked tokens, trained positions are
    added, and one more block, the side-interpolater, predicts the masked tokens from all; kept
    tokens pass it by. A dense pass, sampling included, adds the positions alone. MDT trains with
    `loss: both` at rate 0.3, on the block and the positions of `MDT-XL/2`.
    """

    system: ClassVar[str] = "mdt"

    kind: Literal["mdt"] = "mdt"

    def __str__(self) -> str:
        return "mdt"

    def weights(self, routes: Sequence[RouteSpec]) -> object:
        return "mdt", spans_of(routes)

    def resolved(self, run: RunSpec) -> MdtBypass:
        route = self.one_route(run.routes)
        if run.model.backbone != "dit":
            raise UserError(
                f"bypass: mdt adds a block with attention; {run.model.backbone} has none"
            )
        if route.blocks[0] != 0 or route.blocks[-1] >= run.model.depth - 1:
            raise UserError(
                "bypass: mdt masks from block 0 on and needs a block after the route, write routes:"
                f" [0->B-3], not {route}"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class BothLoss(Loss):
    """L_full + weight * L_masked: a dense pass and one under the routes, each with the plain loss.

    MDT (Gao et al. 2023, section 3.4) trains so, with weight 1. Both passes see the same noise and
    noise level; its code draws the noise of the second pass anew. In steps without routes it is the
    plain loss.

    Attributes:
        weight: of the pass under the routes.
    """

    system: ClassVar[str] = "mdt"

    kind: Literal["both"] = "both"
    weight: Positive = 1.0

    def __str__(self) -> str:
        return "both" if self.weight == 1 else f"both {self.weight:g}"
