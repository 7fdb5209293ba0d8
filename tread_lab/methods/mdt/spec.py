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
    published code. Then mask tokens fill the masked places, trained positions are added, and one
    more block, the side-interpolater, predicts the masked tokens; kept tokens bypass it. A dense
    pass, e.g. for sampling, only adds the positions. MDT trains with
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
                f"bypass: mdt requires a backbone with attention, got {run.model.backbone}"
            )
        if route.blocks[0] != 0 or route.blocks[-1] >= run.model.depth - 1:
            raise UserError(
                "bypass: mdt requires a route from block 0 that ends before the last block, got "
                f"{route}. Try routes: [0->B-3]."
            )
        return self


@dataclass(frozen=True, kw_only=True)
class BothLoss(Loss):
    """L_full + weight * L_masked: a dense pass and one under the routes, each with the plain loss.

    The loss of MDT (Gao et al. 2023, section 3.4), with weight 1. Both passes share noise and
    level; MDT's code draws new noise for the second pass. Steps without routes use the plain loss.

    Attributes:
        weight: weight of the routed pass.
    """

    system: ClassVar[str] = "mdt"

    kind: Literal["both"] = "both"
    weight: Positive = 1.0

    def __str__(self) -> str:
        return "both" if self.weight == 1 else f"both {self.weight:g}"
