"""Attention of queries, keys and values, by the backend that is preferred for their shape."""

# B batch, H heads, N tokens, d width of a head

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

# After the preferred one come those that do what it cannot, such as a layout that it does not read.
_FLASH, _CUDNN = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
_OTHERS = (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
_ORDER = {first: list(dict.fromkeys((first, *_OTHERS))) for first in (_FLASH, _CUDNN, *_OTHERS)}
Shape = tuple[int, int, torch.dtype]  # N, d and the type of the values

# What this process prefers on its device; for other shapes, and under a mask, torch chooses.
PREFERRED: dict[Shape, SDPBackend] = {}


def attend(q_BHNd: Tensor, k_BHNd: Tensor, v_BHNd: Tensor, seen: Tensor | None = None) -> Tensor:
    """Return softmax(q k^T / sqrt(d)) v [B, H, N, d].

    Args:
        seen: which keys a query attends to, as bools; or numbers that are added to q k^T / sqrt(d).
    """
    N, d = v_BHNd.shape[-2:]
    backend = PREFERRED.get((N, d, v_BHNd.dtype)) if seen is None else None
    if backend is None:
        return F.scaled_dot_product_attention(q_BHNd, k_BHNd, v_BHNd, attn_mask=seen)
    with sdpa_kernel(_ORDER[backend], set_priority=True):
        return F.scaled_dot_product_attention(q_BHNd, k_BHNd, v_BHNd)
