"""A plain DiT and its training step as most published codes write them, to be measured against.

Nothing here is shared with `tread_lab`: modulation, attention and EMA are written out, tokens are
gathered and scattered in shuffled order (TREAD), every parameter has its own update of the EMA, and
the loss is read after each step. Its tokens are contiguous, as ours are.
"""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIGMA_DATA = 0.5


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """x (1 + scale) + shift of every token."""
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    """Attention and MLP with adaLN-zero (Peebles & Xie 2023)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(c).chunk(6, dim=1)
        h = modulate(self.norm1(x), shift_a, scale_a)
        B, N, D = h.shape
        qkv = self.qkv(h).reshape(B, N, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, N, D)
        x = x + gate_a.unsqueeze(1) * self.proj(h)
        return x + gate_m.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift_m, scale_m))


class PlainDiT(nn.Module):
    """DiT over `size` x `size` samples; `route` is (start, end, rate), or `None` for none."""

    def __init__(
        self,
        depth: int,
        width: int,
        heads: int,
        patch: int,
        *,
        channels: int = 1,
        size: int = 16,
        classes: int = 10,
        route: tuple[int, int, float] | None = None,
    ) -> None:
        super().__init__()
        self.patch, self.size, self.channels, self.classes = patch, size, channels, classes
        self.route = route
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.register_buffer("place", torch.randn(1, (size // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        self.out = nn.Linear(width, patch * patch * channels)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2).contiguous() + self.place
        frequency = torch.exp(-math.log(10_000) * torch.arange(128, device=t.device) / 128)
        angle = t[:, None] * frequency
        c = self.time(torch.cat([angle.cos(), angle.sin()], dim=1)) + self.label(y)
        for l, block in enumerate(self.blocks):
            if self.route and l == self.route[0]:
                entry, kept = x.clone(), self._kept(x)
                x = x.gather(1, kept)
            x = block(x, c)
            if self.route and l == self.route[1]:
                x = entry.scatter(1, kept, x.to(entry.dtype))
        shift, scale = self.modulation(c).chunk(2, dim=1)
        return self._image(self.out(modulate(self.norm(x), shift, scale)))

    def _kept(self, x: Tensor) -> Tensor:
        """Places of the kept tokens in shuffled order, expanded over the width."""
        assert self.route is not None
        B, N, D = x.shape
        order = torch.rand(B, N, device=x.device).argsort(dim=1)
        return order[:, int(N * self.route[2]) :].unsqueeze(-1).expand(-1, -1, D)

    def _image(self, x: Tensor) -> Tensor:
        side, p = self.size // self.patch, self.patch
        x = x.reshape(len(x), side, side, p, p, self.channels)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(len(x), self.channels, side * p, side * p)


class PlainRun:
    """One training run: EDM's loss, AdamW, an EMA of every parameter by itself."""

    def __init__(self, network: PlainDiT, device: torch.device, precision: str) -> None:
        self.network = network.to(device)
        self.ema = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4, weight_decay=0)
        self.device, self.autocast = device, precision == "bf16"
        self.loss = math.nan

    def step(self, x: Tensor, y: Tensor) -> None:
        """One optimizer step on images x [B, C, H, W] and labels y [B]."""
        x, y = x.to(self.device), y.to(self.device)
        sigma = (torch.randn(len(x), device=self.device) * 1.2 - 1.2).exp()[:, None, None, None]
        y = torch.where(torch.rand(len(y), device=self.device) < 0.1, self.network.classes, y)
        z = x + sigma * torch.randn_like(x)
        total = sigma**2 + SIGMA_DATA**2
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            out = self.network(z / total.sqrt(), sigma.flatten().log() / 4, y)
        denoised = SIGMA_DATA**2 / total * z + sigma * SIGMA_DATA / total.sqrt() * out.float()
        loss = (total / (sigma * SIGMA_DATA) ** 2 * (denoised - x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for mean, live in zip(self.ema.parameters(), self.network.parameters()):
                mean.mul_(0.9999).add_(live, alpha=1e-4)
        self.loss = loss.item()
