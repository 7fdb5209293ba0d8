"""The images of an unfinished evaluation, on the disk as they are drawn; a killed one goes on."""

# B batch, C channels, H height, W width

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tread_lab.data.resumable import Array, ResumableArrays
from tread_lab.specs.errors import Unavailable, UserError

FOLDER = "parts"  # within the folder of an evaluation
_IMAGES, _LABELS = "images", "labels"


class SampleImages(ResumableArrays):
    """The images of one evaluation and their labels, each of which is drawn once.

    Args:
        place: folder of the evaluation.
        fingerprint: what decides the images beside the evaluation's spec.
        shape: (C, H, W) of an image.
        count: images of the whole evaluation.
        batch: images that are drawn, and scored, at once.
    """

    def __init__(
        self,
        place: Path,
        fingerprint: Mapping[str, str],
        shape: tuple[int, int, int],
        count: int,
        batch: int,
    ) -> None:
        self.shape, self.batch = shape, batch
        arrays = {_IMAGES: Array("uint8", shape), _LABELS: Array("int64", ())}
        super().__init__(place / FOLDER, fingerprint, arrays, count)

    def resume(self) -> bool:
        """Make the files, if what is in them was made otherwise, anew; return what `check` does."""
        if self.stored_fingerprint != self.fingerprint:
            remove_images(self.folder.parent)
        self.begin("images")
        return self.check()

    def check(self) -> bool:
        """Let damaged images come again; return whether others are there."""
        stored = np.flatnonzero(self.marks())
        for ids in np.split(stored, range(self.batch, len(stored), self.batch)):
            try:
                self.take(ids)
            except UserError:
                self.forget(ids)
        self._maps = {}  # they are opened again once every image is drawn
        return bool(self.marks().any())

    def keep(self, first: int, images_BCHW: Tensor, labels_B: Tensor) -> None:
        """Store images from number `first` on.

        Raises:
            UserError: the disk is full; what was written before counts. Or another process has
                begun the same images of other weights, or has finished them.
        """
        self._check_own()
        self.write(first, {_IMAGES: images_BCHW.cpu().numpy(), _LABELS: labels_B.cpu().numpy()})

    @property
    def drawn(self) -> int:
        """How many images are drawn."""
        return int(np.count_nonzero(self.marks()))

    def open_batches(self) -> list[range]:
        """Return the batches that are still to be drawn."""
        return self.open_parts(self.batch)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) batch by batch, once all are drawn.

        Raises:
            UserError: they are not what was written, or as of `keep`.
        """
        for start in range(0, self.count, self.batch):
            rows = self.take(np.arange(start, min(start + self.batch, self.count)))
            self._check_own()
            yield torch.from_numpy(rows[_IMAGES]), torch.from_numpy(rows[_LABELS])

    def _check_own(self) -> None:
        if self.stored_fingerprint not in (None, self.fingerprint):
            raise Unavailable(
                f"another process makes the images in {self.folder} with other weights or code; the"
                " same command measures the weights of today"
            )


def remove_images(place: Path) -> None:
    """Remove the images in the folder of an evaluation, whatever version left them there."""
    shutil.rmtree(place / FOLDER, ignore_errors=True)
