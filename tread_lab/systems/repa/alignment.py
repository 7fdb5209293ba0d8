"""REPA while training: a block's tokens, projected, are drawn towards a frozen encoder's."""

# B batch, N tokens, n tokens that ran the block, D width, E width of the features

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.routing.rejoin import gather_tokens
from tread_lab.routing.select import Routing
from tread_lab.systems.repa.spec import RepaSpec

# encoder(x_BCHW) -> features of clean samples on the grid of their tokens, [B, N, E]
Encoder = Callable[[Tensor], Tensor]


class Projector(nn.Sequential):
    """Three linear maps with SiLU between, Xavier weights and zero biases (Yu et al. 2025)."""

    def __init__(self, width: int, hidden: int, features: int) -> None:
        super().__init__(
            nn.Linear(width, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, features),
        )
        for linear in (m for m in self if isinstance(m, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)


class Alignment:
    """The alignment loss of a block; `projector` is trained with the network, not sampled.

    Args:
        encoder: gives the targets of samples that bring none.
    """

    def __init__(self, spec: RepaSpec, encoder: Encoder, projector: nn.Module) -> None:
        assert isinstance(spec.block, int)
        self.spec, self.block = spec, spec.block
        self.encoder, self.projector = encoder, projector

    def loss(
        self,
        streams: Mapping[int, Tensor],
        x_BCHW: Tensor,
        routing: Routing | None,
        target_BNE: Tensor | None = None,
    ) -> Tensor:
        """loss_B = - weight * mean over tokens of cos(projector(h), f).

        Args:
            streams: the residual stream after each block.
            x_BCHW: the clean samples.
            target_BNE: their features f, where they are known.
        """
        h_BnD, real_Bn, target_BnE = streams[self.block], None, target_BNE
        if target_BnE is None:
            with torch.no_grad():
                target_BnE = self.encoder(x_BCHW)
        for route in routing or ():
            if route.start <= self.block <= route.end:
                target_BnE = gather_tokens(target_BnE, route.keep_BK)
                if h_BnD.shape[1] > target_BnE.shape[1]:  # the route has just ended
                    h_BnD = gather_tokens(h_BnD, route.keep_BK)
                real_Bn = route.real_BK
        found_BnE = self.projector(h_BnD)
        cosine_Bn = F.cosine_similarity(found_BnE.float(), target_BnE.float(), dim=2)
        share_Bn = torch.ones_like(cosine_Bn) if real_Bn is None else real_Bn.float()
        return -self.spec.weight * (share_Bn * cosine_Bn).sum(dim=1) / share_Bn.sum(dim=1)
