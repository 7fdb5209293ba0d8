"""A bidirectional Mamba (Gu & Dao 2023; Vision Mamba, Zhu et al. 2024) as a diffusion backbone."""

# B batch, N tokens, D width, E channels of the scan (2 D), S state of a channel, T taps

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.backbones.dit import DiT
from tread_lab.backbones.parts import SelfInitialised, build_norm, modulate
from tread_lab.backbones.selective_scan import selective_scans

EXPAND = 2  # E / D
TAPS = 4  # tokens that the causal convolution sees


class Direction(SelfInitialised):
    """What one reading direction does to its tokens before and after the scan; Mamba's names."""

    def __init__(self, channels: int, rank: int, state: int) -> None:
        super().__init__()
        self.rank, self.state = rank, state
        self.conv1d = nn.Conv1d(channels, channels, TAPS, groups=channels, padding=TAPS - 1)
        self.x_proj = nn.Linear(channels, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, channels)
        self.A_log = nn.Parameter(torch.empty(channels, state))
        self.D = nn.Parameter(torch.empty(channels))

    def forward(self, x_BNE: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the operands of the scan: tokens, step sizes, A, B and C."""
        x_BNE = F.silu(causal_convolution(x_BNE, self.conv1d.weight, self.conv1d.bias))
        step, B, C = self.x_proj(x_BNE).split((self.rank, self.state, self.state), dim=2)
        delta_BNE = F.softplus(self.dt_proj(step))
        return x_BNE, delta_BNE, -self.A_log.float().exp(), B, C

    @torch.no_grad()
    def initialise(self) -> None:
        """Decay rates 1..S, and step sizes log-uniform in [.001, .1] at zero input (Mamba)."""
        rates_S = torch.arange(1, self.state + 1, device=self.A_log.device)
        self.A_log.copy_(rates_S.float().log().expand_as(self.A_log))
        self.D.fill_(1)
        nn.init.uniform_(self.dt_proj.weight, -(self.rank**-0.5), self.rank**-0.5)
        low, high = math.log(1e-3), math.log(1e-1)
        delta_E = torch.empty_like(self.dt_proj.bias).uniform_(low, high).exp()
        self.dt_proj.bias.copy_(delta_E + torch.log(-torch.expm1(-delta_E)))  # softplus inverted


class Mixer(nn.Module):
    """Tokens read forwards and backwards in raster order, the sum gated."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        channels, rank = EXPAND * width, steps_rank(width)
        self.in_proj = nn.Linear(width, 2 * channels, bias=False)
        self.forwards = Direction(channels, rank, state)
        self.backwards = Direction(channels, rank, state)
        self.out_proj = nn.Linear(channels, width, bias=False)

    def forward(self, x_BND: Tensor) -> Tensor:
        x_BNE, gate_BNE = self.in_proj(x_BND).chunk(2, dim=2)
        onward, back = self.forwards(x_BNE), self.backwards(x_BNE.flip(1))
        y_onward, y_back = selective_scans([onward, back])
        y_onward = torch.addcmul(y_onward, onward[0], self.forwards.D)
        y_BNE = y_onward + torch.addcmul(y_back, back[0], self.backwards.D).flip(1)
        return self.out_proj(y_BNE * F.silu(gate_BNE))


class MambaBlock(nn.Module):
    """One mixer, shifted, scaled and gated by the conditioning; it is attention and MLP in one."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.norm = build_norm("layer", width)
        self.mixer = Mixer(width, state)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 3 * width))

    def forward(self, x_BND: Tensor, c_BD: Tensor, positions_BNP: Tensor | None = None) -> Tensor:
        shift_BD, scale_BD, gate_BD = self.adaLN_modulation(c_BD).chunk(3, dim=1)
        h = modulate(self.norm(x_BND), shift_BD, scale_BD)
        return torch.addcmul(x_BND, gate_BD[:, None], self.mixer(h))


class DiffusionMamba(DiT):
    """DiT's embeddings, conditioning and output around Mamba blocks.

    With 12 blocks of width 960 it has TREAD's 111M parameters (111.6M); TREAD gives neither. Its
    Mamba is probably Fei et al.'s DiS (2024): 24 blocks of width 768, whose blocks and long skips
    have 110.3M parameters. DiS reads level and label as tokens instead of modulating each block,
    has RMSNorm, stochastic depth and trained positions, and its long skips would jump over the ends
    of a route. Numbers of table 2 are therefore no reference for this network.
    """

    def block(self, l: int) -> nn.Module:
        return MambaBlock(self.spec.width, self.spec.state)


def steps_rank(width: int) -> int:
    """R = ceil(D / 16), the rank from which step sizes are projected (Mamba)."""
    return math.ceil(width / 16)


def causal_convolution(x_BNE: Tensor, weight_E1T: Tensor, bias_E: Tensor | None) -> Tensor:
    """Each channel mixed over its own token and the T - 1 tokens before."""
    N, T = x_BNE.shape[1], weight_E1T.shape[2]
    padded_BME = F.pad(x_BNE, (0, 0, T - 1, 0))
    out_BNE = x_BNE * weight_E1T[:, 0, T - 1]
    for tap in range(T - 1):
        out_BNE = torch.addcmul(out_BNE, padded_BME[:, tap : tap + N], weight_E1T[:, 0, tap])
    return out_BNE if bias_E is None else out_BNE + bias_E
