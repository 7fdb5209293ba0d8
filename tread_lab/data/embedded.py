"""The embedded images: Fashion-MNIST at 16x16, normalised to mean 0 and deviation 0.5."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from tread_lab.data.stored import Split

ASSET = "fashion_mnist_16.npz"
DEVIATION = 0.5  # EDM's sigma_data
PIXEL_MEAN, PIXEL_DEVIATION = 55.7874599609375, 79.8961892594203  # of all training pixels


class Fashion16:
    """20,000 training and 10,000 held-out images of clothes, 1x16x16, ten classes.

    Fashion-MNIST (Xiao et al. 2017, MIT licence; see LICENSE-fashion-mnist.txt beside the file),
    zero-padded to 32x32 and averaged 2x2; the first 20,000 training images and all test images.
    """

    shape = image_shape = (1, 16, 16)
    classes = 10
    preview = False
    decoder = "levels"

    def __init__(self, split: Split) -> None:
        arrays = _arrays()
        part = "train" if split == "train" else "test"
        self._pixels_NCHW = torch.from_numpy(arrays[f"{part}_images"])[:, None]
        self.labels_N = torch.from_numpy(arrays[f"{part}_labels"]).long()
        content = arrays[f"{part}_images"].tobytes() + arrays[f"{part}_labels"].tobytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples [B, 1, 16, 16] in model space and labels [B]."""
        x_BCHW = self._pixels_NCHW[ids].float()
        return (x_BCHW - PIXEL_MEAN) * (DEVIATION / PIXEL_DEVIATION), self.labels_N[ids]

    def images(self, ids: Tensor) -> Tensor:
        """Return uint8 images [B, 1, 16, 16] as they are stored."""
        return self._pixels_NCHW[ids]

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images [B, 1, 16, 16]: the inverse of `take`, rounded to levels."""
        levels_BCHW = x_BCHW.float() * (PIXEL_DEVIATION / DEVIATION) + PIXEL_MEAN
        return levels_BCHW.round().clamp(0, 255).to(torch.uint8)


@functools.cache
def open_fashion16(split: Split) -> Fashion16:
    """Return the images of one split; a process prepares them once."""
    return Fashion16(split)


@functools.cache
def _arrays() -> dict[str, np.ndarray]:
    with (files("tread_lab.data") / "assets" / ASSET).open("rb") as file:
        return dict(np.load(file, allow_pickle=False))
