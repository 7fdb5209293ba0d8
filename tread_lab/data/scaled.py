"""Stored latents as the network sees them (times `scale`), shown by an autoencoder or a preview."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError

SAMPLED = 64  # latents that go into a fingerprint


class Store(Protocol):
    """One split of a set of latents on disk.

    Attributes:
        shape: (C, H, W) of one latent.
        labels: int64 [N].
        fingerprint: hash of sizes, labels and sampled bytes.
    """

    shape: tuple[int, int, int]
    labels: NDArray[np.int64]
    fingerprint: str

    def read(self, ids: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the stored values [B, C, H, W] of samples `ids` of the split."""

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Return the images [B, 3, height, width] of samples `ids`; `None` if none are stored."""


def fingerprint(store: Store, header: str) -> str:
    """Return a hash of `header`, the labels and the bytes of 64 latents, evenly spread."""
    digest = hashlib.sha256(header.encode())
    digest.update(store.labels.tobytes())
    sampled_ids = np.linspace(0, len(store.labels) - 1, SAMPLED, dtype=int)
    digest.update(store.read(sampled_ids).tobytes())
    return digest.hexdigest()[:16]


class Decoder(Protocol):
    """Turns samples in model space into uint8 images.

    Attributes:
        digest: SHA-256 of its weights.
    """

    @property
    def digest(self) -> str: ...

    def __call__(self, x_BCHW: Tensor) -> Tensor: ...


class ScaledLatents:
    """The samples of a store in model space.

    Raises:
        UserError: a label is outside 0..classes-1.
    """

    def __init__(self, store: Store, spec: DataSpec, decode: Decoder | None = None) -> None:
        lowest, highest = int(store.labels.min()), int(store.labels.max())
        if lowest < 0 or highest >= spec.classes:
            found = f"the labels in {spec.path} run from {lowest} to {highest}"
            raise UserError(f"data.classes: {spec.classes} in the spec, but {found}")
        self.shape = store.shape
        self.classes = spec.classes
        self.preview = decode is None
        self._scale, _ = spec.scales
        self.fingerprint = _mixed(store.fingerprint, self._scale)
        self._store = store
        self._labels_N = torch.from_numpy(store.labels)
        self._decode = decode

    def __len__(self) -> int:
        return len(self._labels_N)

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples [B, C, H, W] in model space and labels [B]."""
        stored_BCHW = torch.from_numpy(self._store.read(ids.numpy()).astype(np.float32))
        return stored_BCHW * self._scale, self._labels_N[ids]

    def images(self, ids: Tensor) -> Tensor | None:
        """Return uint8 images [B, 3, height, width] stored beside the latents, or `None`."""
        images_BCHW = self._store.images(ids.numpy())
        return None if images_BCHW is None else torch.from_numpy(images_BCHW)

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images: decoded where there is an autoencoder, else `preview`."""
        return preview(x_BCHW) if self._decode is None else self._decode(x_BCHW)

    @property
    def decoder(self) -> str:
        """The digest of the autoencoder's weights, else `preview`."""
        return "preview" if self._decode is None else self._decode.digest


def preview(x_BCHW: Tensor) -> Tensor:
    """Something to look at, not an image: the first three channels (or the only one) as colours.

    Each channel of each sample is stretched so that its mean +- 2.5 deviations fill 0..255.
    """
    channels = 3 if x_BCHW.shape[1] >= 3 else 1
    shown_BCHW = x_BCHW[:, :channels].float()
    deviation = shown_BCHW.std(dim=(2, 3), keepdim=True, correction=0).clamp(min=1e-6)
    unit_BCHW = (shown_BCHW - shown_BCHW.mean(dim=(2, 3), keepdim=True)) / deviation
    return (127.5 + unit_BCHW * (127.5 / 2.5)).round().clamp(0, 255).to(torch.uint8)


def _mixed(fingerprint: str, scale: float) -> str:
    return hashlib.sha256(f"{fingerprint} {scale!r}".encode()).hexdigest()[:16]
