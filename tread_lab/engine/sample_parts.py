"""Images of an unfinished evaluation, in parts on the disk beside the sums of their features."""

# B batch, C channels, H height, W width

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.data.resumable import Array, ResumableArrays
from tread_lab.metrics.checked_tensors import read_tensors, write_tensors
from tread_lab.specs.errors import Unavailable

PART = 1024  # images after which a killed evaluation goes on, in whole batches of the sampler
FOLDER = "parts"  # within the folder of an evaluation
IMAGES, LABELS = "images", "labels"
_SUMS = "sums.safetensors"

Batch = dict[str, Tensor]  # images, labels and features by name


class SampleParts:
    """The images of one evaluation so far, with what belongs to them; a killed one goes on.

    Images, labels and features are resumable arrays; after each part of them the sums of all
    features so far are written, with the number of images that they are of and the seconds that
    these took. What is not whole, or was made otherwise, is made again.

    Args:
        folder: of the evaluation.
        fingerprint: what decides images and features beside the evaluation's spec.
        total: images of the whole evaluation.

    Attributes:
        earlier: seconds that earlier attempts took for the images on the disk.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, str], total: int) -> None:
        self.folder, self._fingerprint, self._total = folder / FOLDER, dict(fingerprint), total
        self._arrays: ResumableArrays | None = None  # known with the first batch
        self._written = self.count = 0  # images on the disk, and in all
        self._open: list[Batch] = []  # batches that are in no part yet
        self.earlier, self._begun = 0.0, time.perf_counter()

    def resume(self) -> dict[str, Tensor]:
        """Return the sums of the images on the disk, and count these; empty without any."""
        with contextlib.suppress(OSError, ValueError):  # a file is lost, cut short or changed
            arrays = self._stored()
            found = read_tensors(self.folder / _SUMS)
            if found is not None and arrays.stored_fingerprint == arrays.fingerprint:
                sums, images = found[0], int(found[1]["images"])
                if arrays.marks()[:images].all():
                    for start in range(0, images, PART):
                        arrays.take(np.arange(start, min(start + PART, images)))
                    self._arrays, self._written, self.count = arrays, images, images
                    self.earlier = float(found[1]["seconds"])
                    return sums
        self.remove()
        return {}

    def add(self, images_BCHW: Tensor, labels_B: Tensor, features: Mapping[str, Tensor]) -> None:
        """Take the next batch, on the CPU, with those of its features that must be kept whole."""
        self._open.append({IMAGES: images_BCHW, LABELS: labels_B, **features})
        self.count += len(images_BCHW)

    @property
    def open(self) -> bool:
        """Whether there are batches since the last part."""
        return bool(self._open)

    @property
    def full(self) -> bool:
        """Whether the batches since the last part are worth a part of their own."""
        return sum(len(batch[IMAGES]) for batch in self._open) >= PART

    def close(self, sums: Mapping[str, Tensor]) -> None:
        """Write the open batches as a part, then the sums of all images up to it.

        Raises:
            UserError: the disk is full; what was written before counts. Or another process has
                begun the same images of other weights.
        """
        rows = {quote(name, safe=""): x.numpy() for name, x in _joined(self._open).items()}
        arrays = self._arrays or self._of(rows)
        if arrays.stored_fingerprint not in (None, arrays.fingerprint):
            raise Unavailable(
                f"another process makes the images in {self.folder} with other weights or code; the"
                " same command measures the weights of today"
            )
        if self._arrays is None:
            self._arrays = arrays
            arrays.begin("images")
        arrays.write(self._written, rows)
        self._written, self._open = self.count, []
        seconds = self.earlier + time.perf_counter() - self._begun
        facts = {"images": str(self._written), "seconds": repr(seconds)}
        write_tensors(self.folder / _SUMS, sums, facts)

    def all(self) -> Iterator[Batch]:
        """Yield images, labels and features of all parts in order, then of the batches since."""
        for start in range(0, self._written, PART):
            assert self._arrays is not None
            rows = self._arrays.take(np.arange(start, min(start + PART, self._written)))
            yield {unquote(name): torch.from_numpy(x) for name, x in rows.items()}
        if self._open:
            yield _joined(self._open)

    def remove(self) -> None:
        """Remove every part from the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _stored(self) -> ResumableArrays:
        paths = [*self.folder.glob("*.npy")]
        return self._of({path.stem: np.load(path, mmap_mode="r") for path in paths})

    def _of(self, rows: Mapping[str, NDArray[Any]]) -> ResumableArrays:
        arrays = {name: Array(x.dtype.name, x.shape[1:]) for name, x in rows.items()}
        return ResumableArrays(self.folder, self._fingerprint, arrays, self._total)


def _joined(batches: Iterable[Batch]) -> Batch:
    batches = list(batches)
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
