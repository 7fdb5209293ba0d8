"""Parts that backbones share: attention, MLP, modulation and the embeddings of level and label."""

# B batch, N tokens, D width, H heads, d width of a head

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tread_lab.config.errors import lookup
from tread_lab.config.model import ModelSpec


class SelfInitialised(nn.Module):
    """A module that initializes its own parameters after the network's Xavier pass."""

    def initialise(self) -> None:
        """Initialize the parameters, after the Xavier pass."""
        raise NotImplementedError


def initialise_part(part: nn.Module, *, zero: bool) -> None:
    """Set Xavier weights and zero biases; `zero` then zeroes the modulations."""
    for name, module in part.named_modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
            if zero and "adaLN_modulation" in name:
                nn.init.zeros_(module.weight)
        elif isinstance(module, SelfInitialised):
            module.initialise()


class RelativeBias(SelfInitialised):
    """A trained bias per head and per offset between places of a side x side grid.

    As MDT has it (Gao et al. 2023), after BEiT: (2 side - 1)^2 rows, N(0, .02). The published table
    has three further rows for a class token, which neither network has.
    """

    difference_NN: Tensor

    def __init__(self, side: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, heads))
        place_N = torch.arange(side * side)
        rows_N, columns_N = place_N // side, place_N % side
        down_NN = rows_N[:, None] - rows_N + side - 1
        right_NN = columns_N[:, None] - columns_N + side - 1
        difference_NN = down_NN * (2 * side - 1) + right_NN
        self.register_buffer("difference_NN", difference_NN, persistent=False)

    def forward(self, place_BN1: Tensor, seen_B11N: Tensor | None = None) -> Tensor:
        """Return the bias, [B or 1, H, N, N]; `-inf` for tokens masked by `seen`."""
        ids_BN = place_BN1[:, :, 0]
        if ids_BN.shape[1] == len(self.difference_NN) and seen_B11N is None:
            ids_BN = ids_BN[:1]  # all tokens are here, so in raster order in every sample
        difference_BNN = self.difference_NN[ids_BN[:, :, None], ids_BN[:, None, :]]
        # Fused attention takes no other strides.
        bias_BHNN = self.table[difference_BNN].permute(0, 3, 1, 2).contiguous()
        return bias_BHNN if seen_B11N is None else bias_BHNN.masked_fill(~seen_B11N, -math.inf)

    def initialise(self) -> None:
        nn.init.normal_(self.table, std=0.02)


class Attention(nn.Module):
    """Multi-head self-attention with the published names `qkv` and `proj`.

    Args:
        qk_norm: normalize queries and keys per head (`q_norm`, `k_norm`) by `norm`.
        bias: added to the attention logits, given the places of the tokens.

    Attributes:
        by: kernel, see `attend`; `bf16` rounds queries, keys and values first.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        qk_norm: bool = False,
        norm: str = "layer",
        bias: RelativeBias | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.q_norm = build_norm(norm, width // heads, affine=True) if qk_norm else nn.Identity()
        self.k_norm = build_norm(norm, width // heads, affine=True) if qk_norm else nn.Identity()
        self.bias = bias
        self.by = "fused"

    def forward(
        self, x_BND: Tensor, positions_BNP: Tensor | None = None, real_BN: Tensor | None = None
    ) -> Tensor:
        """Attend from every token to all tokens, or to those where `real_BN` is true.

        Args:
            positions_BNP: rotary features, or with a bias the place, of each token.
        """
        B, N, D = x_BND.shape
        parts = self.qkv(x_BND).chunk(3, dim=2)
        q, k, v = (part.view(B, N, self.heads, D // self.heads).transpose(1, 2) for part in parts)
        q, k = self.q_norm(q), self.k_norm(k)
        dtype = torch.bfloat16 if self.by == "bf16" else v.dtype
        seen = None if real_BN is None else real_BN[:, None, None]
        if self.bias is not None:
            assert positions_BNP is not None
            seen = self.bias(positions_BNP, seen).to(dtype)
        elif positions_BNP is not None:
            q, k = rotate(q, positions_BNP), rotate(k, positions_BNP)
        out_BHNd = attend(q.to(dtype), k.to(dtype), v.to(dtype), seen, by=self.by).to(v.dtype)
        return self.proj(out_BHNd.transpose(1, 2).reshape(B, N, D))


def attend(
    q_BHNd: Tensor,
    k_BHNd: Tensor,
    v_BHNd: Tensor,
    seen: Tensor | None = None,
    *,
    by: str = "fused",
    product: Callable[..., Any] = F.scaled_dot_product_attention,
) -> Any:
    """Return softmax(q k^T / sqrt(d)) v; `seen` is a mask or a bias of the logits.

    With a mask, a GPU uses the memory-efficient kernel, because cuDNN's has failed on such graphs.

    Args:
        by: `math` keeps all weights in memory and makes products as torch multiplies fp32 matrices,
            in tf32 where that is allowed; so does `flex`, fused, in a compiled block on a GPU
            without a mask, and is `math` elsewhere. Others are torch's choice.
        product: of torch; another one looks at its choice.
    """
    if by == "flex" and seen is None and v_BHNd.is_cuda and torch.compiler.is_compiling():
        from torch.nn.attention.flex_attention import flex_attention  # a second of imports

        return flex_attention(q_BHNd, k_BHNd, v_BHNd)
    exact = by in ("math", "flex")
    kernels = [SDPBackend.MATH] if exact else [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    if not exact and (seen is None or not v_BHNd.is_cuda):
        return product(q_BHNd, k_BHNd, v_BHNd, attn_mask=seen)
    with sdpa_kernel(kernels):
        return product(q_BHNd, k_BHNd, v_BHNd, attn_mask=seen)


class Mlp(nn.Module):
    """Two linear maps with GELU (tanh) between, named `fc1` and `fc2` as published."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x_BND), approximate="tanh"))


class SwiGLU(nn.Module):
    """w3 (SiLU(w1 x) * w2 x) with w1 and w2 in one map, named as in LightningDiT (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w12 = nn.Linear(width, 2 * hidden)
        self.w3 = nn.Linear(hidden, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        gate, value = self.w12(x_BND).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


class RMSNorm(nn.RMSNorm):
    """RMSNorm, always in fp32, as LayerNorm under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float())


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
        return self.mlp(torch.cat([angle.cos(), angle.sin()], dim=1))


class LabelEmbedder(nn.Module):
    """Embedding table with classes + 1 rows; the last row is the null class."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.embedding_table = nn.Embedding(classes + 1, width)

    def forward(self, y_B: Tensor) -> Tensor:
        return self.embedding_table(y_B)


class TextEmbedder(nn.Module):
    """Tokens of a frozen text encoder as tokens of the network, by one linear map (U-ViT)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(features, width)

    def forward(self, text_BTE: Tensor) -> Tensor:
        return self.proj(text_BTE.float())


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


NORMS: dict[str, Callable[[int, bool], nn.Module]] = {
    "layer": lambda width, affine: nn.LayerNorm(width, eps=1e-6, elementwise_affine=affine),
    "rms": lambda width, affine: RMSNorm(width, eps=1e-6),
}
MLPS: dict[str, Callable[[int, int], nn.Module]] = {"gelu": Mlp, "swiglu": SwiGLU}


def build_norm(kind: str, width: int, *, affine: bool = False) -> nn.Module:
    """Return a norm of eps 1e-6; LayerNorm has parameters only with `affine`, RMSNorm always.

    Raises:
        UserError: unknown norm.
    """
    return lookup(NORMS, kind, "model.norm")(width, affine)


def block_positions(spec: ModelSpec, side: int) -> Tensor | None:
    """Return the position input of the blocks, [1, N, P], or `None`.

    With `rope` rotary features, with a relative bias the index of the place.
    """
    if spec.relative_bias:
        return torch.arange(side * side)[None, :, None]
    return rotary_positions(side, spec.width // spec.heads)[None] if spec.rope else None


def rotary_positions(side: int, head: int) -> Tensor:
    """(cos, sin) pairs of a side x side grid, [N, head]: half of them by row, half by column.

    Pair f turns by position * 10000^(-4 f / head), as in LightningDiT (RoPE of EVA-02).
    """
    rate = 10_000 ** (-torch.arange(head // 4, dtype=torch.float64) / (head // 4))
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angle = torch.cat([place.reshape(-1, 1).double() * rate for place in (rows, columns)], dim=1)
    return torch.stack([angle.cos(), angle.sin()], dim=2).flatten(1).float()


def rotate(x_BHND: Tensor, rotary_BNP: Tensor) -> Tensor:
    """Rotate features (2 f, 2 f + 1), as a complex number, by angle f of their token.

    Compiled code uses real products instead, because compilers do not support complex numbers:
    equal up to rounding, four times slower without fusion.
    """
    if torch.compiler.is_compiling():
        return turned(x_BHND.float(), rotary_BNP[:, None])
    turn_B1NF = _pairs(rotary_BNP)[:, None]
    return torch.view_as_real(_pairs(x_BHND.float()) * turn_B1NF).flatten(-2)


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """Return (a c - b s, a s + b c) of neighbouring features (a, b) of x and (c, s) of turn."""
    (a, b), (c, s) = (t.view(*t.shape[:-1], -1, 2).unbind(-1) for t in (x, turn))
    return torch.stack([a * c - b * s, a * s + b * c], dim=-1).flatten(-2)


def _pairs(x: Tensor) -> Tensor:
    """Neighbouring features as complex numbers."""
    return torch.view_as_complex(x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2))
