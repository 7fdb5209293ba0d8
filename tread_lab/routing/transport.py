"""How tokens travel around blocks: gather the kept ones, put them back among the untouched rest."""

# B batch, N tokens, K kept tokens, D width

from __future__ import annotations

from torch import Tensor


def send(x_BND: Tensor, keep_BK: Tensor) -> Tensor:
    """The kept tokens alone, x_BKD."""
    return x_BND.gather(1, keep_BK[:, :, None].expand(-1, -1, x_BND.shape[2]))


def merge(entry_BND: Tensor, kept_BKD: Tensor, keep_BK: Tensor) -> Tensor:
    """Kept tokens at their places among the routed ones, which are as they entered the route."""
    places_BKD = keep_BK[:, :, None].expand_as(kept_BKD)
    return entry_BND.scatter(1, places_BKD, kept_BKD.to(entry_BND.dtype))
