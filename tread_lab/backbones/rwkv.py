"""Diffusion-RWKV (Fei et al. 2024): DiT with bidirectional RWKV blocks instead of attention."""

# B batch, N tokens, D width

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.backbones.dit import DiT
from tread_lab.backbones.parts import SelfInitialised, build_norm, modulate


class SpatialMix(SelfInitialised):
    """Token mixing by Bi-WKV; names as in Vision-RWKV.

    Args:
        side: tokens of a row; in a route whole rows remain, so the grid only loses height.
        place: l / (B - 1) and 1 - l / B for block l of B.
    """

    def __init__(self, width: int, side: int, place: tuple[float, float]) -> None:
        super().__init__()
        self.side, self.place = side, place
        self.spatial_decay = nn.Parameter(torch.empty(width))
        self.spatial_first = nn.Parameter(torch.empty(width))
        self.spatial_mix_k = nn.Parameter(torch.empty(1, 1, width))
        self.spatial_mix_v = nn.Parameter(torch.empty(1, 1, width))
        self.spatial_mix_r = nn.Parameter(torch.empty(1, 1, width))
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.receptance = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        near_BND = shift(x_BND, self.side)
        k = self.key(torch.lerp(near_BND, x_BND, self.spatial_mix_k))
        v = self.value(torch.lerp(near_BND, x_BND, self.spatial_mix_v))
        r = self.receptance(torch.lerp(near_BND, x_BND, self.spatial_mix_r))
        wkv_BND = bi_wkv(self.spatial_decay, self.spatial_first, k, v)
        return self.output(torch.sigmoid(r) * wkv_BND)

    @torch.no_grad()
    def initialise(self) -> None:
        """RWKV's spread of decays over channels and of mixing over channels and depth."""
        late, early = self.place
        x_D = channel_ramp(self.spatial_decay)
        D = len(x_D)
        spread_D = torch.arange(D, device=x_D.device) / max(D - 1, 1)
        self.spatial_decay.copy_(-5 + 8 * spread_D ** (0.7 + 1.3 * late))
        zigzag_D = (torch.arange(D, device=x_D.device) + 1) % 3 - 1
        self.spatial_first.copy_(math.log(0.3) + 0.5 * zigzag_D)
        self.spatial_mix_k.copy_(x_D**early)
        self.spatial_mix_v.copy_(x_D**early + 0.3 * late)
        self.spatial_mix_r.copy_(x_D ** (0.5 * early))


class ChannelMix(SelfInitialised):
    """A gated MLP with squared ReLU; names as in Vision-RWKV."""

    def __init__(self, width: int, hidden: int, side: int, place: tuple[float, float]) -> None:
        super().__init__()
        self.side, self.place = side, place
        self.spatial_mix_k = nn.Parameter(torch.empty(1, 1, width))
        self.spatial_mix_r = nn.Parameter(torch.empty(1, 1, width))
        self.key = nn.Linear(width, hidden, bias=False)
        self.receptance = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(hidden, width, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        near_BND = shift(x_BND, self.side)
        k = F.relu(self.key(torch.lerp(near_BND, x_BND, self.spatial_mix_k))).square()
        r = self.receptance(torch.lerp(near_BND, x_BND, self.spatial_mix_r))
        return torch.sigmoid(r) * self.value(k)

    @torch.no_grad()
    def initialise(self) -> None:
        x_D = channel_ramp(self.spatial_mix_k.flatten())
        self.spatial_mix_k.copy_(x_D ** self.place[1])
        self.spatial_mix_r.copy_(x_D ** self.place[1])


class RWKVBlock(nn.Module):
    """Spatial and channel mixing, each shifted, scaled and gated by the conditioning."""

    def __init__(self, width: int, hidden: int, side: int, place: tuple[float, float]) -> None:
        super().__init__()
        self.norm1 = build_norm("layer", width)
        self.att = SpatialMix(width, side, place)
        self.norm2 = build_norm("layer", width)
        self.ffn = ChannelMix(width, hidden, side, place)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x_BND: Tensor, c_BD: Tensor, positions_BNP: Tensor | None = None) -> Tensor:
        m = self.adaLN_modulation(c_BD).chunk(6, dim=1)
        h = modulate(self.norm1(x_BND), m[0], m[1])
        x_BND = torch.addcmul(x_BND, m[2][:, None], self.att(h))
        h = modulate(self.norm2(x_BND), m[3], m[4])
        return torch.addcmul(x_BND, m[5][:, None], self.ffn(h))


class DiffusionRWKV(DiT):
    """DiT's embeddings, conditioning and output around RWKV blocks.

    Differences from the published network (feizc/Diffusion-RWKV), which also has:

    - long skips, joined by a linear map: they would jump over the ends of a route;
    - `ln0`, a norm of the embeddings before block 0, and `norm_f`, one before the final layer;
    - the affine part of the norms of a block, which the modulation has;
    - stochastic depth (0 to .1 over the blocks), whose draws would have to follow seed and step;
    - trained positions, from the same sin-cos start; here they stay fixed;
    - learned variance.

    12 blocks of width 952 have 210.7M parameters (TREAD: 210M, 12 blocks, width not stated).
    Diffusion-RWKV trains 25 to 49 blocks.
    """

    def block(self, l: int) -> nn.Module:
        s = self.spec
        place = (l / max(s.depth - 1, 1), 1 - l / s.depth)
        return RWKVBlock(s.width, s.hidden, self.side, place)


def shift(x_BND: Tensor, side: int) -> Tensor:
    """Q-shift: a quarter of the channels each from the left, right, upper and lower neighbour.

    Rows have `side` tokens; zeros pad the border.
    """
    B, N, D = x_BND.shape
    assert N % side == 0, f"{N} tokens are not whole rows of {side}"
    left, right, upper, lower = x_BND.view(B, N // side, side, D).chunk(4, dim=3)
    parts = (
        F.pad(left, (0, 0, 1, -1)),
        F.pad(right, (0, 0, -1, 1)),
        F.pad(upper, (0, 0, 0, 0, 1, -1)),
        F.pad(lower, (0, 0, 0, 0, -1, 1)),
    )
    return torch.cat(parts, dim=3).view(B, N, D)


def channel_ramp(like_D: Tensor) -> Tensor:
    """0, 1/D, ..., (D-1)/D."""
    return torch.arange(len(like_D), device=like_D.device) / len(like_D)


def ordered_sums(y_ND: Tensor) -> Tensor:
    """Running sums over places, like `cumsum` but in a fixed order on a GPU. The product is in
    float64, because fp32 products may be rounded to tf32."""
    ones_NN = torch.ones(2 * y_ND.shape[-2:-1], dtype=torch.float64, device=y_ND.device).tril()
    return (ones_NN @ y_ND.double()).to(y_ND.dtype)


def bi_wkv(decay_D: Tensor, first_D: Tensor, k_BND: Tensor, v_BND: Tensor) -> Tensor:
    """Vision-RWKV's eq. 4 (Duan et al. 2024), in fp32 whatever the inputs are:

        wkv_t = sum_i e^{f(t, i) + k_i} v_i / sum_i e^{f(t, i) + k_i},
        f(t, i) = -(|t - i| - 1) w / N,  f(t, t) = u / N

    Keys enter as e^{k - max k} for stability. The parts before and after a token are running sums:
    with a = w / N,

        sum_{i < t} e^{-(t - 1 - i) a} y_i = e^{-(t - 1) a} sum_{i < t} e^{i a} y_i

    Places count from the middle of the tokens: no factor exceeds e^{|w| / 2}.

    Args:
        decay_D, first_D: w and u of each channel, before their division by N.

    Returns:
        wkv_BND in the dtype of `v_BND`.
    """
    N = k_BND.shape[1]
    with torch.autocast(k_BND.device.type, enabled=False):
        k_BND, a_D, u_D = k_BND.float(), decay_D.float() / N, first_D.float() / N
        weight_BND = (k_BND - k_BND.amax(dim=1, keepdim=True).detach()).exp()
        y = torch.stack([weight_BND * v_BND.float(), weight_BND])  # numerator, denominator
        place_N1 = torch.arange(N, device=k_BND.device)[:, None] - N / 2
        rise_ND, fall_ND = (place_N1 * a_D).exp(), (-place_N1 * a_D).exp()
        exactly = y.is_cuda and torch.are_deterministic_algorithms_enabled()
        add = ordered_sums if exactly else partial(torch.cumsum, dim=-2)
        before = fall_ND[:-1] * add(rise_ND * y)[:, :, :-1]
        after = rise_ND[1:] * add((fall_ND * y).flip(2)).flip(2)[:, :, 1:]
        sums = u_D.exp() * y + F.pad(before, (0, 0, 1, 0)) + F.pad(after, (0, 0, 0, 1))
        return (sums[0] / sums[1]).to(v_BND.dtype)
