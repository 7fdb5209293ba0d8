"""Files in folders with a dataset.json, as EDM2 and REPA write them: latents or PNG images."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError, first_line
from tread_lab.data.autoencoder import levels
from tread_lab.data.stored import (
    ContentFile,
    OneFileEach,
    Split,
    check_labels,
    data_path,
    split_ids,
    wrong,
)

INDEX = "dataset.json"
LATENTS, IMAGES = "vae-sd", "images"  # REPA's subfolders
BOTH = "img-mean-std-"  # EDM2's names of files with mean and deviation, C channels each


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image of levels 0..255.

    Raises:
        ValueError: more levels, which PIL would clip.
    """
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"PIL mode {image.mode} must have levels 0..255; convert the image")
    return image


class LabelledFiles:
    """The files that a dataset.json names, in order of their names, with their labels.

    EDM2's and REPA's tools write `{"labels": [["00000/img00000000.png", 6], ...]}` in the folder of
    the data, or in REPA's subfolder.

    Raises:
        UserError: a missing file, or other content.
    """

    def __init__(self, path: Path, subfolder: str) -> None:
        self.folder = path / subfolder if (path / subfolder / INDEX).exists() else path
        index = self.folder / INDEX
        try:
            tree = json.loads(index.read_text(encoding="utf-8"))
            rows = sorted((str(name), int(label)) for name, label in tree["labels"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            wanted = "pairs of file and label below `labels`, as EDM2's and REPA's files"
            raise wrong(index, wanted, repr(error)) from None
        if not rows:
            raise wrong(index, "pairs of file and label below `labels`", "none")
        self.names = [name for name, _ in rows]
        self.labels_n: NDArray[np.int64] = np.array([label for _, label in rows], dtype=np.int64)

    def files(self) -> list[ContentFile]:
        """Return the index and its files."""
        index = self.folder / INDEX
        return [(INDEX, index), *(("", self.folder / name) for name in self.names)]

    def image(self, place: int) -> NDArray[np.uint8]:
        """Return an image [3, height, width]."""
        path = self.folder / self.names[place]
        try:
            with Image.open(path) as image:
                return np.asarray(eight_bits(image).convert("RGB")).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError) as error:  # SyntaxError: a broken PNG
            raise wrong(path, "an image", first_line(error)) from None

    def images(self, places: Sequence[int]) -> NDArray[np.uint8]:
        """Return images [B, 3, height, width], all of one shape."""
        images = [self.image(place) for place in places]
        for place, image in zip(places, images, strict=True):
            if image.shape != images[0].shape:
                path, found = self.folder / self.names[place], list(image.shape)
                raise wrong(path, f"an image {list(images[0].shape)} as others", found)
        return np.stack(images)


class FolderLatents(OneFileEach):
    """One split of latents in files: `dataset.json` in the folder, or in its `vae-sd` (REPA).

    Files named `img-mean-std-*` contain mean and deviation of the posterior, other files a latent.
    REPA's encoder sees the images in `images` beside the latents, in the same order.
    """

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        own = LabelledFiles(path, LATENTS)
        images = _images_beside(own)
        return own.files() + (images.files() if images else [])

    def open(self, split: Split) -> tuple[NDArray[np.integer], tuple[int, ...]]:
        self._files = LabelledFiles(self.path, LATENTS)
        self._images = _images_beside(self._files)
        moments = Path(self._files.names[0]).name.startswith(BOTH)
        self.posterior = "deviation" if moments else "none"
        return self._files.labels_n, self.latent(0).shape

    def content(self, place: int) -> bytes:
        return Path(self.name(place)).read_bytes()

    def name(self, place: int) -> str:
        return str(self._files.folder / self._files.names[place])

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        places = self.places[ids].tolist()
        return None if self._images is None else self._images.images(places)


class FolderImages:
    """One split of PNG images in files, as values of -1..1 times `scale`, without autoencoder.

    Raises:
        UserError: the index or a file is missing, damaged or of another shape.
    """

    preview = False
    decoder = "levels"

    def __init__(self, spec: DataSpec, split: Split, fingerprint: Callable[[], str] = str) -> None:
        self._files, self._fingerprint = LabelledFiles(data_path(spec), IMAGES), fingerprint
        self._scale, _ = spec.scales
        self.shape: tuple[int, int, int] = self._files.image(0).shape
        self._places = split_ids(len(self._files.names), split)
        labels_N = self._files.labels_n[self._places]
        check_labels(labels_N, spec)
        self.classes = spec.classes
        self.labels_N = torch.from_numpy(labels_N)

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        """Return the files that determine the data."""
        return LabelledFiles(path, IMAGES).files()

    def __len__(self) -> int:
        return len(self.labels_N)

    @property
    def fingerprint(self) -> str:
        """Digest of the samples of `take`."""
        return self._fingerprint()

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples [B, 3, H, W] in model space and labels [B]."""
        x_BCHW = self.images(ids).float() / 127.5 - 1
        return x_BCHW * self._scale, self.labels_N[ids]

    def images(self, ids: Tensor) -> Tensor:
        """Return uint8 images [B, 3, H, W] as they are stored."""
        return torch.from_numpy(self._files.images(self._places[ids.numpy()].tolist()))

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images [B, 3, H, W]: the inverse of `take`, rounded to levels."""
        return levels(x_BCHW.float() / self._scale)


def _images_beside(latents: LabelledFiles) -> LabelledFiles | None:
    """The images in `images` beside the folder of the latents, where they are."""
    folder = latents.folder.parent / IMAGES
    if latents.folder.name != LATENTS or not (folder / INDEX).exists():
        return None
    images = LabelledFiles(folder, IMAGES)
    if not np.array_equal(images.labels_n, latents.labels_n):
        raise UserError(
            f"data.path: labels in {folder / INDEX} ({len(images.names)}) must equal those in "
            f"{latents.folder / INDEX} ({len(latents.names)}). Try making both from the same"
            " images."
        )
    return images
