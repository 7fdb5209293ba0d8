"""MDT's side-interpolater: one block that predicts masked tokens from mask tokens and kept ones."""

# B batch, N tokens, K kept tokens, D width, P position features

from __future__ import annotations

import torch
from torch import Tensor, nn

from tread_lab.backbones.dit import ZEROED, dit_block
from tread_lab.backbones.parts import block_positions, initialise_part, sincos_positions
from tread_lab.config.errors import lookup
from tread_lab.config.model import ModelSpec
from tread_lab.routing.rejoin import Span, scatter_tokens
from tread_lab.routing.select import BatchRoute


class SideInterpolater(nn.Module):
    """x = m * block(u) + (1 - m) * u, u = kept tokens and mask tokens plus positions (Gao et al.
    2023, section 3.3); m is 1 where a token is masked.

    Without masked tokens it only adds positions, like the published network while sampling. The
    block is of the network's kind.

    Args:
        spec: the network around it.
        side: side of the token grid.
    """

    width: int | None = None
    places_1NP: Tensor | None

    def __init__(self, spec: ModelSpec, *, side: int, spans: tuple[Span, ...]) -> None:
        super().__init__()
        self.spans = spans
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, spec.width))
        self.decoder_pos_embed = nn.Parameter(sincos_positions(side, spec.width)[None])
        self.block = dit_block(spec, side)
        self.register_buffer("places_1NP", block_positions(spec, side), persistent=False)
        initialise_part(self.block, zero=lookup(ZEROED, spec.init, "model.init"))

    def forward(
        self,
        kept_BKD: Tensor,
        route: BatchRoute,
        *,
        entry_BND: Tensor,
        embedded_BND: Tensor,
        c_BD: Tensor,
    ) -> Tensor:
        masks_BND = self.mask_token.expand_as(entry_BND)
        u_BND = (
            scatter_tokens(masks_BND, kept_BKD, route.keep_BK, route.real_BK)
            + self.decoder_pos_embed
        )
        N = u_BND.shape[1]
        if route.whole(N):
            return u_BND
        places_1NP = self.places_1NP
        places_BNP = None if places_1NP is None else places_1NP.expand(len(u_BND), -1, -1)
        m_BN1 = route.mask(N)[:, :, None].bool()
        return torch.where(m_BN1, self.block(u_BND, c_BD, places_BNP), u_BND)
