"""Images and a small autoencoder that tests make for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

SCALE = 1.7  # brings the small autoencoder's latents, posterior included, near a deviation of 1


def write_images(folder: Path, count: int) -> None:
    """PNG images of 20 to 90 pixels a side in three classes, each class with its own colour."""
    rng = np.random.default_rng(0)
    for k in range(count):
        height, width = rng.integers(20, 90, 2)
        levels = rng.integers(0, 96, (height, width, 3), np.uint8)
        levels[..., k % 3] += 128
        path = folder / f"n{k % 3:08d}" / f"n{k % 3:08d}_{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(levels).save(path)


def write_autoencoder(folder: Path) -> None:
    """A random AutoencoderKL of diffusers: 4 channels, sides halved, factor `SCALE`."""
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        scaling_factor=SCALE,
    ).save_pretrained(folder)
