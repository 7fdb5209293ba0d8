"""How tokens travel around blocks: gather the kept ones, put them back among the untouched rest."""

# B batch, N tokens, K kept tokens, D width

from __future__ import annotations

import torch
from torch import Tensor


def gather_tokens(x_BND: Tensor, keep_BK: Tensor) -> Tensor:
    """Return the kept tokens alone, x_BKD."""
    return x_BND.gather(1, keep_BK[:, :, None].expand(-1, -1, x_BND.shape[2]))


def scatter_tokens(
    entry_BND: Tensor, kept_BKD: Tensor, keep_BK: Tensor, real_BK: Tensor | None = None
) -> Tensor:
    """Return kept tokens at their places among the routed ones, which are as they entered.

    Args:
        real_BK: places that hold kept tokens; what fills up the others stays as it entered.
    """
    kept_BKD = kept_BKD.to(entry_BND.dtype)
    if real_BK is not None:
        kept_BKD = torch.where(real_BK[:, :, None], kept_BKD, gather_tokens(entry_BND, keep_BK))
    return entry_BND.scatter(1, keep_BK[:, :, None].expand_as(kept_BKD), kept_BKD)
