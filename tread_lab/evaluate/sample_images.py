"""The images of an unfinished evaluation, one file per batch; a killed one skips those on disk."""

# B batch, C channels, H height, W width

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tread_lab.records.durable import read_json, replacing, write_json
from tread_lab.specs.errors import Unavailable

FOLDER = "parts"  # within the folder of an evaluation
_MADE_WITH = "made_with.json"


class SampleImages:
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
        self.folder, self.shape, self.count, self.batch = place / FOLDER, shape, count, batch
        self.fingerprint = json.loads(json.dumps({**fingerprint, "batch": batch}))

    def resume(self) -> bool:
        """Remove batches that were made otherwise; return whether others are there."""
        if self._stored() != self.fingerprint:
            remove_images(self.folder.parent)
            write_json(self.folder / _MADE_WITH, self.fingerprint)
        return self.drawn > 0

    def keep(self, first: int, images_BCHW: Tensor, labels_B: Tensor) -> None:
        """Store the batch that begins with image `first`.

        Raises:
            UserError: the disk is full; what was written before counts. Or another process has
                begun the same images of other weights, or has finished them.
        """
        self._check_own()
        with replacing(self._path(first)) as temporary, temporary.open("wb") as file:
            np.savez(file, images=images_BCHW.cpu().numpy(), labels=labels_B.cpu().numpy())

    @property
    def drawn(self) -> int:
        """How many images are drawn."""
        return self.count - sum(map(len, self.open_batches()))

    def open_batches(self) -> list[range]:
        """Return the batches that are still to be drawn."""
        return [rows for rows in self._batches() if not self._path(rows.start).exists()]

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (images, labels) batch by batch, once all are drawn.

        Raises:
            UserError: as of `keep`.
        """
        for rows in self._batches():
            self._check_own()
            with np.load(self._path(rows.start)) as batch:
                yield torch.from_numpy(batch["images"]), torch.from_numpy(batch["labels"])

    def _batches(self) -> Iterator[range]:
        for start in range(0, self.count, self.batch):
            yield range(start, min(start + self.batch, self.count))

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:08d}.npz"

    def _stored(self) -> dict[str, str] | None:
        stored: dict[str, str] | None = read_json(self.folder / _MADE_WITH)
        return stored

    def _check_own(self) -> None:
        if self._stored() != self.fingerprint:
            raise Unavailable(
                f"another process makes the images in {self.folder} with other weights or code, or"
                " has finished them; the same command measures the weights of today"
            )


def remove_images(place: Path) -> None:
    """Remove the images in the folder of an evaluation."""
    shutil.rmtree(place / FOLDER, ignore_errors=True)
