"""Parts that backbones share: attention, MLP, modulation and the embeddings of level and label."""

# B batch, N tokens, D width, H heads

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention with the published names `qkv` and `proj`."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        B, N, D = x_BND.shape
        q, k, v = self.qkv(x_BND).view(B, N, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        out_BHND = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(out_BHND.transpose(1, 2).reshape(B, N, D))
        return out


class Mlp(nn.Module):
    """Two linear maps with GELU (tanh) between, named `fc1` and `fc2` as published."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(x_BND), approximate="tanh"))
        return out


class LevelEmbedder(nn.Module):
    """Sinusoids of a scalar (period 10000), then an MLP."""

    def __init__(self, width: int, frequencies: int = 256) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.mlp = nn.Sequential(nn.Linear(frequencies, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t_B: Tensor) -> Tensor:
        half = self.frequencies // 2
        rate = torch.exp(-math.log(10_000) / half * torch.arange(half, device=t_B.device))
        angle = t_B.float()[:, None] * rate
        out: Tensor = self.mlp(torch.cat([angle.cos(), angle.sin()], dim=1))
        return out


class LabelEmbedder(nn.Module):
    """A table of classes + 1 rows; the last row is the null class."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.embedding_table = nn.Embedding(classes + 1, width)

    def forward(self, y_B: Tensor) -> Tensor:
        out: Tensor = self.embedding_table(y_B)
        return out


def modulate(x_BND: Tensor, shift_BD: Tensor, scale_BD: Tensor) -> Tensor:
    """x (1 + scale) + shift, per sample (DiT, adaLN)."""
    return torch.addcmul(shift_BD[:, None], x_BND, 1 + scale_BD[:, None])


def sincos_positions(side: int, width: int) -> Tensor:
    """Fixed 2-D sin-cos positions of a side x side grid, [N, D]: first half for columns (DiT)."""
    rate = 1 / 10_000 ** (torch.arange(width // 4, dtype=torch.float64) / (width / 4))
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    halves = []
    for place in (columns, rows):
        angle = place.reshape(-1, 1).double() * rate
        halves += [angle.sin(), angle.cos()]
    return torch.cat(halves, dim=1).float()
