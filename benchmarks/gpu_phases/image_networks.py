"""Networks of the shapes of SD's decoder and of Inception-v3, with random weights, to be timed.

The machines that are measured may lack diffusers, torch-fidelity and every published weight; time
does not depend on these.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (128, 256, 512, 512)  # of SD's autoencoder, from pixels to latents
# Inception-v3's stages as stacks of plain convolutions: channels, side, convolutions of 3x3.
STAGES = ((192, 35, 6), (448, 17, 5), (1024, 8, 3))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, c_in: int, c_out: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, c, eps=1e-6) for c in (c_in, c_out))
        self.convolutions = nn.ModuleList(nn.Conv2d(c, c_out, 3, padding=1) for c in (c_in, c_out))
        self.shortcut = nn.Identity() if c_in == c_out else nn.Conv2d(c_in, c_out, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for norm, convolution in zip(self.norms, self.convolutions):
            h = convolution(F.silu(norm(h)))
        return self.shortcut(x) + h


class Attention(nn.Module):
    """One head over all places."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (part.unsqueeze(1) for part in self.qkv(h).chunk(3, dim=2))
        h = self.out(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        return x + h.transpose(1, 2).reshape(x.shape)


class Upsample(nn.Module):
    """Nearest neighbours, then a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolution(F.interpolate(x, scale_factor=2.0))


def decoder() -> nn.Sequential:
    """Return the decoder: latents [B, 4, h, w] -> images [B, 3, 8h, 8w]."""
    c = WIDTHS[-1]
    layers: list[nn.Module] = [nn.Conv2d(4, c, 3, padding=1)]
    layers += [Residual(c, c), Attention(c), Residual(c, c)]
    for stage, width in enumerate(reversed(WIDTHS)):
        layers += [Residual(c, width), Residual(width, width), Residual(width, width)]
        c = width
        layers += [Upsample(c)] if stage < len(WIDTHS) - 1 else []
    return nn.Sequential(
        *layers, nn.GroupNorm(32, c, eps=1e-6), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1)
    )


class Features(nn.Module):
    """uint8 images -> features [B, 1024], of about Inception-v3's 5.7 GMAC an image."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, *(c for c, _, count in STAGES for _ in range(count))]
        self.sides = [side for _, side, count in STAGES for _ in range(count)]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(widths)
        )

    def forward(self, images_BCHW: Tensor) -> Tensor:
        x = F.interpolate(images_BCHW.float() / 127.5 - 1, size=(299, 299), mode="bilinear")
        for convolution, side in zip(self.convolutions, self.sides):
            x = x if x.shape[2] == side else F.adaptive_avg_pool2d(x, side)
            x = F.relu(convolution(x))
        return x.mean(dim=(2, 3))


def macs(features: Features) -> int:
    """Return the MACs of an image's features."""
    weights = (convolution.weight.numel() for convolution in features.convolutions)
    return sum(n * side * side for n, side in zip(weights, features.sides))


def drawn(network: nn.Module, device: torch.device) -> nn.Module:
    """Return a network in evaluation mode on a device."""
    return network.eval().requires_grad_(False).to(device)
