"""A bidirectional Mamba (Gu & Dao 2023; Vision Mamba, Zhu et al. 2024), and its selective scan."""

# B batch, N tokens, D width, E channels of the scan (2 D), S state of a channel, T taps, L tokens
# of a chunk; time comes first inside the scan

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.backbones.dit import DiT
from tread_lab.backbones.parts import SelfInitialised, build_norm, modulate

EXPAND = 2  # E / D
TAPS = 4  # tokens that the causal convolution sees
CHUNK = 16  # tokens between which the state of the scan is kept
Fused = Callable[..., Tensor]


class Direction(SelfInitialised):
    """One reading direction: projections before and after the scan, with Mamba's names."""

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
    """One mixer, shifted, scaled and gated by the conditioning; it replaces attention and MLP."""

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

    12 blocks of width 960 have 111.6M parameters (TREAD: 111M, depth and width not stated). TREAD's
    Mamba is probably DiS (Fei et al. 2024): 24 blocks of width 768, 110.3M parameters with long
    skips. DiS reads level and label as tokens, has RMSNorm, stochastic depth and trained positions,
    and its long skips would cross the ends of a route. Do not compare with the numbers of Table 2.
    """

    def block(self, l: int) -> nn.Module:
        return MambaBlock(self.spec.width, self.spec.state)


def steps_rank(width: int) -> int:
    """R = ceil(D / 16), the rank from which step sizes are projected (Mamba)."""
    return math.ceil(width / 16)


def causal_convolution(x_BNE: Tensor, weight_E1T: Tensor, bias_E: Tensor | None) -> Tensor:
    """Mix each channel over the last T tokens."""
    N, T = x_BNE.shape[1], weight_E1T.shape[2]
    padded_BME = F.pad(x_BNE, (0, 0, T - 1, 0))
    out_BNE = x_BNE * weight_E1T[:, 0, T - 1]
    for tap in range(T - 1):
        out_BNE = torch.addcmul(out_BNE, padded_BME[:, tap : tap + N], weight_E1T[:, 0, tap])
    return out_BNE if bias_E is None else out_BNE + bias_E


def selective_scans(
    scans: Sequence[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]], *, chunk: int = CHUNK
) -> list[Tensor]:
    """Return y_BNE of Mamba's recurrence (Gu & Dao 2023, eq. 2) for several scans of equal shape:

        h_t = exp(delta_t A) h_{t-1} + delta_t x_t B_t,    y_t = sum_s C_ts h_ts

    Computed in fp32. Only the states between chunks are kept; the backward pass recomputes the
    rest. On a GPU with `mamba_ssm` installed, its kernel is used.

    Args:
        scans: (x_BNE, delta_BNE, A_ES, B_BNS, C_BNS) each, with positive step sizes delta and
            negative decay rates A, so that no exponential exceeds 1.
    """
    x_BNE = scans[0][0]
    kernel = fused_scan() if x_BNE.is_cuda else None
    with torch.autocast(x_BNE.device.type, enabled=False):
        exact = [tuple(t.float() for t in scan) for scan in scans]
        if kernel is None:
            outputs = list(_chunked(exact, chunk))
        else:
            outputs = [through(kernel, *scan) for scan in exact]
    return [y_BNE.to(x_BNE.dtype) for y_BNE in outputs]


def _chunked(scans: Sequence[tuple[Tensor, ...]], chunk: int) -> tuple[Tensor, ...]:
    """The scans side by side as one batch, time first; each sample has the decays of its scan."""
    x, delta, A, B, C = zip(*scans)
    size = len(x[0])
    joined = [torch.cat([t.transpose(0, 1) for t in parts], dim=1) for parts in (x, delta, B, C)]
    A_BSE = torch.cat([A_ES.t().expand(size, -1, -1) for A_ES in A])
    y_NBE: Tensor = _Scan.apply(*joined[:2], A_BSE, *joined[2:], chunk)
    return y_NBE.transpose(0, 1).chunk(len(scans))


def through(kernel: Fused, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """Return the same by the fused kernel, which expects time last."""
    return kernel(x.mT.contiguous(), delta.mT.contiguous(), A, B.mT, C.mT).mT


def fused_scan() -> Fused | None:
    """Return the kernel of `mamba_ssm`; `None` if it is not installed."""
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
    except ImportError:
        return None
    kernel: Fused = selective_scan_fn
    return kernel


class _Scan(torch.autograd.Function):
    """The recurrence, one fused multiply-add over batch, state and channels per token."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk: int
    ) -> Tensor:
        h_BSE, entries, outputs = torch.zeros_like(A), [], []
        space = x.new_empty((2, min(chunk, len(x)), *h_BSE.shape))
        for part in _parts(len(x), chunk):
            entries.append(h_BSE)
            _, h_LBSE = _states(space, h_BSE, x[part], delta[part], A, B[part])
            outputs.append(_mixed(C[part], h_LBSE))
            h_BSE = h_LBSE[-1].clone()
        ctx.save_for_backward(x, delta, A, B, C, *entries)
        ctx.chunk = chunk
        return torch.cat(outputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, delta, A, B, C, *entries = ctx.saved_tensors
        dx, ddelta, dB, dC = (torch.empty_like(t) for t in (x, delta, B, C))
        dA, carry_BSE = torch.zeros_like(A), torch.zeros_like(entries[0])
        space = x.new_empty((3, min(ctx.chunk, len(x)), *carry_BSE.shape))
        for part, entry in reversed([*zip(_parts(len(x), ctx.chunk), entries)]):
            decay, h = _states(space, entry, x[part], delta[part], A, B[part])
            g = _adjoint(space[2], grad[part], C[part], decay, carry_BSE)
            dC[part] = (h @ grad[part][..., None]).squeeze(3)
            dB[part] = (g @ (delta[part] * x[part])[..., None]).squeeze(3)
            from_input = _mixed(B[part], g)
            carry_BSE = decay[0] * g[0]
            # g * decay * h_{t-1} is the gradient of the exponent delta_t A
            exponent = decay.mul_(g)
            exponent[1:] *= h[:-1]
            exponent[0] *= entry
            dx[part] = delta[part] * from_input
            of_delta = torch.mul(exponent, A, out=h).sum(2)
            ddelta[part] = of_delta.addcmul_(x[part], from_input)
            dA += exponent.mul_(delta[part][:, :, None]).sum(0)
        return dx, ddelta, dA, dB, dC, None


def _parts(n: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def _states(
    space: Tensor, h_BSE: Tensor, x_LBE: Tensor, delta_LBE: Tensor, A_BSE: Tensor, B_LBS: Tensor
) -> tuple[Tensor, Tensor]:
    """exp(delta A) and the states of a chunk that starts from state h, written into `space`."""
    decay_LBSE, h_LBSE = space[0, : len(x_LBE)], space[1, : len(x_LBE)]
    torch.mul(delta_LBE[:, :, None], A_BSE, out=decay_LBSE).exp_()
    torch.mul(B_LBS[..., None], (delta_LBE * x_LBE)[:, :, None], out=h_LBSE)
    for decay, h in zip(decay_LBSE.unbind(0), h_LBSE.unbind(0)):
        h_BSE = h.addcmul_(decay, h_BSE)
    return decay_LBSE, h_LBSE


def _mixed(weight_LBS: Tensor, h_LBSE: Tensor) -> Tensor:
    """sum_s w_s h_s; matrix products of a few rows are slow on a CPU, so small states are added."""
    S = weight_LBS.shape[2]
    if S > 8:
        return (weight_LBS[:, :, None] @ h_LBSE).squeeze(2)
    total_LBE = h_LBSE[:, :, 0] * weight_LBS[:, :, :1]
    for s in range(1, S):
        total_LBE.addcmul_(h_LBSE[:, :, s], weight_LBS[:, :, s : s + 1])
    return total_LBE


def _adjoint(
    space: Tensor, grad_LBE: Tensor, C_LBS: Tensor, decay_LBSE: Tensor, carry_BSE: Tensor
) -> Tensor:
    """Gradients of the states: g_t = grad_t C_t + decay_{t+1} g_{t+1}, from the last one back."""
    g_LBSE = torch.mul(C_LBS[..., None], grad_LBE[:, :, None], out=space[: len(grad_LBE)])
    g_LBSE[-1] += carry_BSE
    g, decay = g_LBSE.unbind(0), decay_LBSE.unbind(0)
    for t in range(len(g) - 2, -1, -1):
        g[t].addcmul_(decay[t + 1], g[t + 1])
    return g_LBSE
