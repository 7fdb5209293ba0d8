"""The interface of a data set, the table of layouts that opens one by name, its digest."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from tread_lab.config.data import SOURCES, DataSpec
from tread_lab.config.errors import UserError, lookup
from tread_lab.config.registry import Registry
from tread_lab.data.autoencoder import open_autoencoder
from tread_lab.data.content import digest_of, hashed
from tread_lab.data.embedded import open_fashion16
from tread_lab.data.folder import FolderImages, FolderLatents
from tread_lab.data.latents import PackedArrays, read_manifest
from tread_lab.data.lightning import SafetensorsFiles
from tread_lab.data.shards import TarShards
from tread_lab.data.statistics import statistics_file
from tread_lab.data.stored import ContentFile, ScaledLatents, Split, Store, data_path


class Samples(Protocol):
    """One split of a data set with random access; a sample depends on its number only.

    Attributes:
        shape: (C, H, W) of one sample in model space.
        classes: number of class labels; labels are 0..classes-1.
        labels_N: int64 label of each sample.
        fingerprint: hash of the samples of `take`.
        preview: whether `pixels` returns previews, which image metrics must not use.
        decoder: name or weights digest of the decoder of `pixels`: equal fingerprints and decoders
            give equal images.
    """

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def classes(self) -> int: ...
    @property
    def labels_N(self) -> Tensor: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def preview(self) -> bool: ...
    @property
    def decoder(self) -> str: ...

    def __len__(self) -> int: ...

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples `ids` [B]: float32 [B, C, H, W] in model space and int64 labels [B]."""

    def images(self, ids: Tensor) -> Tensor | None:
        """Original uint8 images [B, 1 or 3, height, width] of samples `ids`; `None` if only latents
        are stored."""

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images [B, 1 or 3, height, width] of samples, on their device."""


def redrawn(samples: Samples, ids: Tensor, *key: int | str) -> tuple[Tensor, Tensor]:
    """Return samples `ids` for one training step: from `take`, or redrawn with seed `key` (sampled
    posteriors, mirrored images)."""
    redraw = getattr(samples, "redraw", None)
    return samples.take(ids) if redraw is None else redraw(ids, *key)


def open_data(spec: DataSpec, split: Split) -> Samples:
    """Return the samples of one split.

    TREAD_LAB_AUTOENCODER names the decoder of latents; without it `pixels` is a preview.

    Raises:
        UserError: missing or damaged data, or a mismatch with `spec`.
    """
    samples = lookup(OPENERS, spec.source, "data.source")(spec, split)
    channels, *sides = samples.shape
    _agree("channels", spec.channels, channels)
    for side in sides:
        _agree("size", spec.size, side)
    return samples


def both_parts(spec: DataSpec) -> tuple[Samples, Samples]:
    """Return the samples of the training and of the held-out part, see `open_data`."""
    return open_data(spec, "train"), open_data(spec, "heldout")


def image_shape(samples: Samples) -> tuple[int, int, int] | None:
    """Return (C, H, W) of the images of `pixels`; `None` if unknown before decoding."""
    shape: tuple[int, int, int] | None = getattr(samples, "image_shape", None)
    return shape


def content_digest(
    data: DataSpec, cache: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> str | None:
    """Return a content digest of a data set (16 hexadecimal digits), independent of its path;
    `None` for the embedded set.

    Covers training and held-out samples, labels, captions and, if used, normalization statistics.

    Args:
        cache: folder of a lab with known digests.
        say: called with a message before reading much data.

    Raises:
        UserError: the data cannot be read.
    """
    if data.is_embedded:
        return None
    if data.source not in FILES:  # of another package: by what it says of its two parts
        return hashed(samples.fingerprint for samples in both_parts(data))
    path = data_path(data).absolute()
    try:
        files = [*FILES[data.source](path)]
        if not files:
            raise UserError(f"data.path: must contain data, got none in {path}")
        if data.normalised:
            files.append(("statistics", statistics_file(str(path))))
        return digest_of(path, files, cache, say)
    except OSError as error:
        raise UserError(f"data.path: {error.filename or path}: {error.strerror}") from None


def check_content(data: DataSpec, cache: Path | None = None) -> None:
    """Refuse data that have changed since planning."""
    if data.digest is not None and (found := content_digest(data, cache)) != data.digest:
        raise UserError(
            f"data: {data.path} must have the digest {data.digest} of the plan, got {found}. Try"
            " restoring the data, or plan again (changed data make new runs)."
        )


def _fingerprint(spec: DataSpec, split: Split) -> str:
    """Return the digest of what `take` gives of one split."""
    return hashed(map(str, (spec.digest or content_digest(spec), split, spec.scales[0])))


def _fashion16(spec: DataSpec, split: Split) -> Samples:
    samples = open_fashion16(split)
    _agree("classes", spec.classes, samples.classes)
    return samples


def _folder_images(spec: DataSpec, split: Split) -> Samples:
    return FolderImages(spec, split, functools.partial(_fingerprint, spec, split))


def _latents(spec: DataSpec, split: Split) -> Samples:
    decode = open_autoencoder(scale=_divisor(spec), range=spec.decoder_range)
    fingerprint = functools.partial(_fingerprint, spec, split)
    return ScaledLatents(LAYOUTS[spec.source](spec, split), spec, decode, fingerprint)


def _divisor(spec: DataSpec) -> float | None:
    """Return what the decoder divides by; where channels are normalised, it takes what is stored,
    which is times a factor in tars and in what was packed of tars.

    Raises:
        UserError: the manifest of packed data is damaged.
    """
    if not spec.normalised:
        return spec.scales[1]
    manifest = (spec.source == "latents" and read_manifest(data_path(spec))) or {}
    origin = manifest.get("made_with", {}).get("packed", spec.source)
    factor = SOURCES[origin].decoder_scale
    return factor and (spec.decoder_scale or factor)


Opener = Callable[[DataSpec, Split], Samples]

# Sources whose samples are latents, with their layout.
LAYOUTS: Mapping[str, type[Store]] = {
    "latents": PackedArrays,
    "shards": TarShards,
    "folder": FolderLatents,
    "safetensors": SafetensorsFiles,
}

# The files that decide what a set of each source is, in their order.
FILES: Mapping[str, Callable[[Path], Iterable[ContentFile]]] = {
    "images": FolderImages.files,
    **{source: layout.files for source, layout in LAYOUTS.items()},
}

OPENERS: Registry[Opener] = Registry(
    "source",
    {"fashion16": _fashion16, "images": _folder_images, **dict.fromkeys(LAYOUTS, _latents)},
    SOURCES,
)


def open_store(source: str, path: Path, split: Split = "all") -> Store:
    """Return the stored latents of a source; `all` excludes held-out arrays.

    Raises:
        UserError: no latents, or missing or damaged ones.
    """
    return lookup(LAYOUTS, source, "--source")(DataSpec(source=source, path=str(path)), split)


def _agree(name: str, said: int, stored: int) -> None:
    if said != stored:
        raise UserError(f"data.{name}: must be {stored} as in the data, got {said}")
