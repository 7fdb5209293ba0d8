"""Files in folders with a dataset.json, as EDM2 and REPA write them: latents or PNG images."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError, first_line
from tread_lab.data.autoencoder import levels
from tread_lab.data.npy import read_npy
from tread_lab.data.scaled import SAMPLED, Split, Store, check_labels, split_ids

T = TypeVar("T", bound=np.generic)

INDEX = "dataset.json"
LATENTS, IMAGES = "vae-sd", "images"  # REPA's subfolders
BOTH = "img-mean-std-"  # EDM2's names of files with mean and deviation, C channels each


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image of levels 0..255.

    Raises:
        ValueError: its levels are more, which PIL would cut to white.
    """
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"PIL's mode {image.mode} has other levels than 0..255; convert it")
    return image


class LabelledFiles:
    """The files that a dataset.json names, in order of their names, with their labels.

    `{"labels": [["00000/img00000000.png", 6], ...]}` is what EDM2's and REPA's tools write.

    Raises:
        UserError: there is no such file, or it holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        index = folder / INDEX
        try:
            tree = json.loads(index.read_text(encoding="utf-8"))
            rows = sorted((str(name), int(label)) for name, label in tree["labels"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"data.path: {index} must hold pairs of file and label below `labels`, got"
                f" {error!r}. Try the folder of EDM2's or REPA's files, unpacked."
            ) from None
        self.names = [name for name, _ in rows]
        self.labels_n: NDArray[np.int64] = np.array([label for _, label in rows], dtype=np.int64)

    def latent(self, place: int) -> NDArray[np.floating]:
        """Return an array [C or 2C, H, W] of floats."""
        with self._reading(place) as path:
            array: NDArray[np.floating] = read_npy(path.read_bytes())
            if array.dtype.kind != "f" or array.ndim != 3:
                raise ValueError(f"{array.dtype} {list(array.shape)}, not floats [C, H, W]")
        return array

    def image(self, place: int) -> NDArray[np.uint8]:
        """Return an image [3, height, width]."""
        with self._reading(place) as path, Image.open(path) as image:
            return np.asarray(eight_bits(image).convert("RGB")).transpose(2, 0, 1)

    @contextlib.contextmanager
    def _reading(self, place: int) -> Iterator[Path]:
        path = self.folder / self.names[place]
        try:
            yield path
        except (OSError, ValueError, EOFError, SyntaxError) as error:  # SyntaxError: a broken PNG
            found = first_line(error)
            raise UserError(f"data.path: {path}: must be a whole sample, got {found}") from None

    def stacked(
        self,
        read: Callable[[int], NDArray[T]],
        places: Sequence[int],
        shape: tuple[int, ...] | None = None,
    ) -> NDArray[T]:
        """Return what `read` gives of each place as one array.

        Args:
            shape: of every sample; `None` for that of the first one.
        """
        samples = [read(place) for place in places]
        wanted = shape or samples[0].shape
        for place, sample in zip(places, samples, strict=True):
            with self._reading(place):
                if sample.shape != wanted:
                    raise ValueError(f"{list(sample.shape)}, others are {list(wanted)}")
        return np.stack(samples)


class FolderLatents(Store):
    """One split of latents in files: `dataset.json` in the folder, or in its `vae-sd` (REPA).

    Files named `img-mean-std-*` hold mean and deviation of the encoder's posterior, the others a
    latent. REPA's encoder sees the images in `images` beside the latents, in the same order.

    Raises:
        UserError: the index or a file is absent, damaged or of another shape.
    """

    def __init__(self, spec: DataSpec, split: Split) -> None:
        self._files = labelled_files(spec, LATENTS)
        moments = Path(self._files.names[0]).name.startswith(BOTH)
        self.posterior = "deviation" if moments else "none"
        self._stored_shape = self._files.latent(0).shape
        channels, *sides = self._stored_shape
        self.shape: tuple[int, int, int] = (channels // (2 if moments else 1), *sides)
        self._images = images_beside(self._files)
        self._ids = split_ids(len(self._files.names), split)
        self.labels: NDArray[np.int64] = self._files.labels_n[self._ids]

    @property
    def header(self) -> str:
        return f"{super().header} {self.posterior}"

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        places = self._ids[ids].tolist()
        return self._files.stacked(self._files.latent, places, self._stored_shape)

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        if self._images is None:
            return None
        return self._images.stacked(self._images.image, self._ids[ids].tolist())


class FolderImages:
    """One split of PNG images in files, as values of -1..1 times `scale`; there is no autoencoder.

    Raises:
        UserError: the index or a file is absent, damaged or of another shape.
    """

    preview = False
    decoder = "levels"

    def __init__(self, spec: DataSpec, split: Split) -> None:
        self._files = labelled_files(spec, IMAGES)
        self._scale, _ = spec.scales
        self.shape: tuple[int, int, int] = self._files.image(0).shape
        self._ids = split_ids(len(self._files.names), split)
        labels_N = self._files.labels_n[self._ids]
        check_labels(labels_N, spec)
        self.classes = spec.classes
        self.labels_N = torch.from_numpy(labels_N)
        digest = hashlib.sha256(f"{len(labels_N)} {self.shape} {self._scale!r}".encode())
        digest.update((spec.digest or "").encode())
        digest.update(labels_N.tobytes())
        sampled = torch.linspace(0, len(labels_N) - 1, SAMPLED).long()
        digest.update(self.images(sampled).numpy().tobytes())
        self.fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples [B, 3, H, W] in model space and labels [B]."""
        x_BCHW = self.images(ids).float() / 127.5 - 1
        return x_BCHW * self._scale, self.labels_N[ids]

    def images(self, ids: Tensor) -> Tensor:
        """Return uint8 images [B, 3, H, W] as they are stored."""
        places = self._ids[ids.numpy()].tolist()
        return torch.from_numpy(self._files.stacked(self._files.image, places, self.shape))

    def pixels(self, x_BCHW: Tensor) -> Tensor:
        """Return uint8 images [B, 3, H, W]: the inverse of `take`, rounded to levels."""
        return levels(x_BCHW.float() / self._scale)


def labelled_files(spec: DataSpec, subfolder: str) -> LabelledFiles:
    """Return the files in the folder of the data, or in REPA's subfolder of it."""
    if spec.path is None:
        raise UserError(f"data.path: give the folder that holds {INDEX}")
    folder = Path(spec.path).expanduser()
    within = folder / subfolder
    return LabelledFiles(within if (within / INDEX).exists() else folder)


def images_beside(latents: LabelledFiles) -> LabelledFiles | None:
    """The images in `images` beside the folder of the latents, where they are."""
    folder = latents.folder.parent / IMAGES
    if latents.folder.name != LATENTS or not (folder / INDEX).exists():
        return None
    images = LabelledFiles(folder)
    if not np.array_equal(images.labels_n, latents.labels_n):
        raise UserError(
            f"data.path: {folder / INDEX} has {len(images.names)} labels that are not those of"
            f" {latents.folder / INDEX} ({len(latents.names)}); make both of the same images"
        )
    return images
