"""Stored latents, and as the network sees them: scaled, drawn anew each step, decoded."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab import draws
from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.arrays import read_npy
from tread_lab.data.autoencoder import Autoencoder
from tread_lab.data.statistics import channel_statistics

MOST_NAMED = 5  # labels of a line
Split = Literal["train", "heldout", "all"]  # `all`: every sample that is no held-out array's
MOST_HELDOUT = 10_000


def split_ids(n: int, split: Split) -> NDArray[np.int64]:
    """The stored places of one split, ascending: 5% are held out, at most 10,000, at least 1.

    They are evenly spaced, because data are often sorted by class. The split depends on `n` only.

    Raises:
        UserError: fewer than two samples.
    """
    if n < 2:
        raise UserError(f"data.path: must hold two or more samples to split, got {n}")
    if split == "all":
        return np.arange(n, dtype=np.int64)
    count = max(1, min(n // 20, MOST_HELDOUT))
    heldout = (np.arange(count) * n + n // 2) // count
    if split == "heldout":
        return heldout.astype(np.int64)
    return np.setdiff1d(np.arange(n), heldout, assume_unique=True)


# What is stored behind the C channels of a latent, which is then the posterior's mean.
Posterior = Literal["none", "log_variance", "deviation"]
Captions = tuple[str, ...]  # all captions of one sample; COCO has five of each image
ContentFile = tuple[str, Path]  # a file that decides what data are, its name "" where none counts


class Store:
    """One split of latents on disk; base class of the layouts, which open and read files.

    Attributes:
        shape: (C, H, W) of one latent.
        labels: int64 [N].
        posterior: kind of the C channels after the mean, if any.
        flips: whether latents of mirrored images are stored, too.
        own_heldout: whether held-out samples are stored separately; else `split_ids` chooses.

    Raises:
        UserError: a missing or damaged file, or other content.
    """

    shape: tuple[int, int, int]
    labels: NDArray[np.int64]
    posterior: Posterior = "none"
    flips: bool = False
    own_heldout: bool = False

    def __init__(self, spec: DataSpec, split: Split) -> None:
        self.path = data_path(spec)
        labels_n, (channels, *sides) = self.open(split)
        if self.posterior != "none" and channels % 2:
            raise wrong(self.path, "mean and deviation, 2C channels", channels)
        height, width = sides
        self.shape = channels if self.posterior == "none" else channels // 2, height, width
        n = len(labels_n)
        self.places = np.arange(n) if self.own_heldout else split_ids(n, split)
        self.labels = labels_n[self.places].astype(np.int64)

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        """Return the files that determine the data, in a fixed order."""
        raise NotImplementedError

    def open(self, split: Split) -> tuple[NDArray[np.integer], tuple[int, ...]]:
        """Return the label of each stored sample, and the shape [C or 2C, H, W] of one."""
        raise NotImplementedError

    def stored(
        self, places: NDArray[np.int64], mirrored: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        """Return a new array with the values stored at places [B], mirrored where requested."""
        raise NotImplementedError

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        """Return a new array with the stored values [B, C or 2C, H, W] of samples `ids` of the
        split, of mirrored images where `mirrored` [B] is true."""
        plain = np.zeros(len(ids), bool)
        return self.stored(self.places[ids], plain if mirrored is None else mirrored)

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        """Return the images [B, 3, height, width] of samples `ids`; `None` if none are stored."""
        return None

    def captions(self) -> list[Captions] | None:
        """Return all captions of each sample, or `None` without any."""
        return None


class OneFileEach(Store):
    """A layout with one .npy file of floats [C or 2C, H, W] per sample."""

    alike: tuple[int, ...] | None = None

    def content(self, place: int) -> bytes:
        """Return the bytes of the .npy at a place."""
        raise NotImplementedError

    def name(self, place: int) -> str:
        """Return the name of a file in errors."""
        raise NotImplementedError

    def latent(self, place: int) -> NDArray[np.floating]:
        """Return the stored values at one place."""
        try:
            latent: NDArray[np.floating] = read_npy(self.content(place))
        except (OSError, ValueError, EOFError) as error:
            raise wrong(self.name(place), "a whole .npy", error) from None
        if latent.dtype.kind != "f" or latent.ndim != 3 or self.alike not in (None, latent.shape):
            found = f"{latent.dtype} {list(latent.shape)}"
            raise wrong(self.name(place), "floats [C, H, W] as others", found)
        self.alike = latent.shape
        return latent

    def stored(
        self, places: NDArray[np.int64], mirrored: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        return np.stack([self.latent(place) for place in places.tolist()])


def data_path(spec: DataSpec) -> Path:
    """Return the path of the data of a spec."""
    if spec.path is None:
        wanted = "must be the folder or file of the data, got none"
        raise UserError(f"data.path: {wanted}. Try data.path=FOLDER.")
    return Path(spec.path)


def wrong(file: Path | str, wanted: str, found: object) -> UserError:
    """Return the error of a file with unexpected content."""
    return UserError(f"data.path: {file}: must hold {wanted}, got {found}. Try making it anew.")


class ScaledLatents:
    """The samples of a store in model space: (stored - mean) / deviation * scale, where the spec
    normalises channels, else stored * scale.

    Attributes:
        flips: whether `redraw` gives latents of mirrored images, too.

    Raises:
        UserError: a label outside 0..classes-1, or missing or invalid statistics.
    """

    def __init__(
        self,
        store: Store,
        spec: DataSpec,
        decode: Autoencoder | None = None,
        fingerprint: Callable[[], str] = str,
    ) -> None:
        check_labels(store.labels, spec)
        self.shape = store.shape
        self.classes = spec.classes
        self.preview = decode is None
        self.flips = store.flips and spec.flips
        self._sampled = store.posterior != "none" and spec.posterior == "sampled"
        self._scale, _ = spec.scales
        self._store, self._decode, self._fingerprint = store, decode, fingerprint
        self._affine: tuple[Tensor, Tensor] | None = None  # mean and deviation [C, 1, 1]
        if spec.normalised:
            assert spec.path is not None
            found = channel_statistics(spec.path, self.shape[0])
            mean_C, deviation_C = (torch.from_numpy(values).float() for values in found)
            self._affine = mean_C[:, None, None], deviation_C[:, None, None]
        self.labels_N = torch.from_numpy(store.labels)

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def fingerprint(self) -> str:
        """Digest of the samples of `take`."""
        return self._fingerprint()

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples [B, C, H, W] in model space and labels [B]; stored posteriors give the
        mean, never mirrored."""
        return self.redraw(ids)

    def redraw(self, ids: Tensor, *key: int | str) -> tuple[Tensor, Tensor]:
        """Return the same with sampled posteriors and mirrored images, drawn with seed `key`, if
        stored and requested by the spec."""
        C, mirrored = self.shape[0], None
        if key and self.flips:
            mirrored = (draws.uniform((len(ids),), *key, "flip") < 0.5).numpy()
        stored_BCHW = _float32(self._store.read(ids.numpy(), mirrored))
        z_BCHW = stored_BCHW[:, :C].contiguous()
        if key and self._sampled:
            spread_BCHW = stored_BCHW[:, C:]
            if self._store.posterior == "log_variance":
                spread_BCHW = (0.5 * spread_BCHW).exp()
            z_BCHW = z_BCHW + spread_BCHW * draws.normal(tuple(z_BCHW.shape), *key, "posterior")
        return self._in_model_space(z_BCHW), self.labels_N[ids]

    def _in_model_space(self, z_BCHW: Tensor) -> Tensor:
        """Return stored values as the network sees them; may change what it is given."""
        if self._affine is not None:
            mean_C11, deviation_C11 = self._affine
            z_BCHW = (z_BCHW - mean_C11) / deviation_C11
        return z_BCHW if self._scale == 1 else z_BCHW.mul_(self._scale)

    def images(self, ids: Tensor) -> Tensor | None:
        """Return uint8 images [B, 3, height, width] stored beside the latents, or `None`."""
        images_BCHW = self._store.images(ids.numpy())
        return None if images_BCHW is None else torch.from_numpy(images_BCHW)

    def captions(self) -> list[Captions] | None:
        """Return all captions of each sample, or `None` where the store has none."""
        return self._store.captions()

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images: decoded where there is an autoencoder, else `preview`."""
        return preview(x_BCHW) if self._decode is None else self._decode(self._to_decode(x_BCHW))

    def compile_decoder(self) -> None:
        """Let the autoencoder, where there is one, decode by compiled kernels."""
        if self._decode is not None:
            self._decode.compiled = True

    def decoded(self, x_BCHW: Tensor) -> Tensor | None:
        """Return decoded values before rounding, in -1..1 if the decoder's range is correct; `None`
        without an autoencoder."""
        return None if self._decode is None else self._decode.signed(self._to_decode(x_BCHW))

    def _to_decode(self, x_BCHW: Tensor) -> Tensor:
        """Return samples in model space as the decoder takes them."""
        if self._affine is None:
            return x_BCHW
        mean_C11, deviation_C11 = (values.to(x_BCHW.device) for values in self._affine)
        return x_BCHW.float() / self._scale * deviation_C11 + mean_C11

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """(C, H, W) of the images of `pixels`; `None` if unknown before decoding."""
        if self._decode is None or self._decode.enlarges is None:
            return None
        _, height, width = self.shape
        return 3, height * self._decode.enlarges, width * self._decode.enlarges

    @property
    def decoder(self) -> str:
        """The digest of the autoencoder's weights, else `preview`."""
        return "preview" if self._decode is None else self._decode.digest


def check_labels(labels_N: NDArray[np.int64], spec: DataSpec) -> None:
    """Refuse labels outside 0..classes-1."""
    lowest, highest = int(labels_N.min()), int(labels_N.max())
    if lowest < 0 or highest >= spec.classes:
        found = f"the labels in {spec.path} run from {lowest} to {highest}"
        raise UserError(f"data.classes: must fit the data, got {spec.classes}: {found}")


def absent_labels(labels_N: NDArray[np.int64], classes: int) -> str:
    """Describe labels among 0..classes-1 without samples, at most a few; empty for none."""
    absent = np.setdiff1d(np.arange(classes), labels_N)
    named = ", ".join(map(str, absent[:MOST_NAMED].tolist()))
    return named if len(absent) <= MOST_NAMED else f"{named}, ... ({len(absent)} of {classes})"


def preview(x_BCHW: Tensor) -> Tensor:
    """Preview of latents: the first three channels (or the only one) as colours.

    Each channel of each sample is stretched so that its mean +- 2.5 deviations fill 0..255.
    """
    channels = 3 if x_BCHW.shape[1] >= 3 else 1
    shown_BCHW = x_BCHW[:, :channels].float()
    deviation = shown_BCHW.std(dim=(2, 3), keepdim=True, correction=0).clamp(min=1e-6)
    unit_BCHW = (shown_BCHW - shown_BCHW.mean(dim=(2, 3), keepdim=True)) / deviation
    return (127.5 + unit_BCHW * (127.5 / 2.5)).round().clamp(0, 255).to(torch.uint8)


def _float32(stored: NDArray[np.floating]) -> Tensor:
    """Return a new array as a float32 tensor; torch converts fp16 five times faster than numpy."""
    native = stored if stored.dtype.isnative else stored.astype(np.float32)
    return torch.from_numpy(native).float()
