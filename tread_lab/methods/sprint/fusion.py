"""SPRINT's fusion: mask tokens replace routed ones, a linear map joins deep and shallow."""

# B batch, N tokens, K kept tokens, D width

from __future__ import annotations

import torch
from torch import Tensor, nn

from tread_lab.routing.rejoin import Span, scatter_tokens
from tread_lab.routing.select import BatchRoute


class Fusion(nn.Module):
    """x = W [deep; shallow] + b, deep padded with one mask token (Park et al. 2025).

    Args:
        learned: whether the mask token is trained.
    """

    width: int | None = None

    def __init__(self, width: int, *, spans: tuple[Span, ...], learned: bool = True) -> None:
        super().__init__()
        self.spans = spans
        self.mask_token = nn.Parameter(0.02 * torch.randn(1, 1, width), requires_grad=learned)
        self.linear = nn.Linear(2 * width, width)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

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
        deep_BND = scatter_tokens(masks_BND, kept_BKD, route.keep_BK, route.real_BK)
        if route.dropped_B is not None:
            deep_BND = torch.where(route.dropped_B[:, None, None], masks_BND, deep_BND)
        fused_BND: Tensor = self.linear(torch.cat([deep_BND, entry_BND], dim=2))
        return fused_BND.to(entry_BND.dtype)
