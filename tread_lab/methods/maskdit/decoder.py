"""MaskDiT's decoder: a few narrow blocks that see all places, masked ones by a mask token."""

# B batch, N tokens, K kept tokens, D width of the encoder, E width of the decoder

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.backbones.dit import ZEROED, DiTBlock
from tread_lab.backbones.parts import initialise_part, modulate, sincos_positions
from tread_lab.config.errors import lookup
from tread_lab.config.model import ModelSpec
from tread_lab.methods.maskdit.spec import MaskBypass
from tread_lab.routing.rejoin import Span, scatter_tokens
from tread_lab.routing.run_blocks import run_blocks
from tread_lab.routing.select import BatchRoute

# What the map from D to E starts as, after the Xavier pass over the decoder.
ADAPTERS: dict[str, Callable[[nn.Linear], object]] = {
    "zero": lambda linear: nn.init.zeros_(linear.weight),
    "xavier": lambda linear: None,
}


class DecoderBlock(DiTBlock):
    """A DiT block of width E under the encoder's conditioning of width D."""

    def __init__(self, width: int, heads: int, hidden: int, cond: int) -> None:
        super().__init__(width, heads, hidden)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(cond, 6 * width))


class MaskDecoder(nn.Module):
    """Decoder from kept tokens of width D to all tokens of width E (Zheng et al. 2024).

    Kept tokens are normalised, modulated and mapped to E; a mask token fills the other places;
    fixed positions are added; then the blocks run. With `fill: entry` these places have the tokens
    that entered the route, mapped like the kept tokens.

    Args:
        spec: the encoder.
        side: side of the token grid.
    """

    def __init__(
        self, spec: ModelSpec, decoder: MaskBypass, *, side: int, spans: tuple[Span, ...]
    ) -> None:
        super().__init__()
        D, E = spec.width, decoder.width
        self.spans = spans
        self.width: int | None = E
        mask_token = 0.02 * torch.randn(1, 1, E)
        self.mask_token = nn.Parameter(mask_token) if decoder.fill == "mask_token" else None
        self.pos_embed = nn.Parameter(sincos_positions(side, E)[None], requires_grad=False)
        self.adapter = nn.Linear(D, E)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(D, 2 * D))
        hidden = int(E * spec.mlp_ratio)
        blocks = (DecoderBlock(E, decoder.heads, hidden, D) for _ in range(decoder.depth))
        self.blocks = nn.ModuleList(blocks)
        initialise_part(self, zero=lookup(ZEROED, spec.init, "model.init"))
        lookup(ADAPTERS, decoder.adapter, "bypass.adapter")(self.adapter)

    def forward(
        self,
        kept_BKD: Tensor,
        route: BatchRoute,
        *,
        entry_BND: Tensor,
        embedded_BND: Tensor,
        c_BD: Tensor,
    ) -> Tensor:
        shift_BD, scale_BD = self.adaLN_modulation(c_BD).chunk(2, dim=1)

        def mapped(x_BND: Tensor) -> Tensor:
            normal_BND = F.layer_norm(x_BND, x_BND.shape[-1:], eps=1e-6)
            return self.adapter(modulate(normal_BND, shift_BD, scale_BD))

        if self.mask_token is None:
            x_BNE = mapped(scatter_tokens(entry_BND, kept_BKD, route.keep_BK, route.real_BK))
        else:
            masks_BNE = self.mask_token.expand(*entry_BND.shape[:2], -1)
            x_BNE = scatter_tokens(masks_BNE, mapped(kept_BKD), route.keep_BK, route.real_BK)
        return run_blocks(self.blocks, x_BNE + self.pos_embed, c_BD)
