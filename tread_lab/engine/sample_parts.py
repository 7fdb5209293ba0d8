"""Images of an unfinished evaluation, in parts on the disk beside the sums of their features."""

# B batch, C channels, H height, W width

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.metrics.checked_tensors import read_tensors, write_tensors
from tread_lab.records.durable import replacing

PART = 1024  # images after which a killed evaluation goes on, in whole batches of the sampler
FOLDER = "parts"  # within the folder of an evaluation
IMAGES, LABELS = "images", "labels"


class SampleParts:
    """The images of one evaluation so far, with what belongs to them; a killed one goes on.

    A part is a file of images, labels and features; after each one the sums of all features so far
    are written, with the number of parts that they are of. Both carry a checksum, and whatever is
    not whole, or was made otherwise, is made again.

    Args:
        folder: of the evaluation.
        made_with: what decides images and features beside the evaluation's spec.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, str]) -> None:
        self.folder, self._made_with = folder / FOLDER, json.dumps(made_with, sort_keys=True)
        self._written = 0  # parts on the disk that count
        self._open: list[dict[str, Tensor]] = []  # batches that are in no part yet
        self._closed: tuple[list[dict[str, Tensor]], Mapping[str, Tensor]] | None = None
        self.count = 0

    def resume(self) -> dict[str, Tensor]:
        """Return the sums of the images on the disk, and count these; empty without any."""
        self._written = self.count = 0
        found = read_tensors(self.folder / "sums.safetensors")
        if found is None or found[1].get("made_with") != self._made_with:
            self.remove()
            return {}
        sums, facts = found
        parts = [read_tensors(self._path(k)) for k in range(int(facts["parts"]))]
        sizes = [len(part[0][IMAGES]) if part else 0 for part in parts]
        if not all(sizes):
            self.remove()
            return {}
        self._written, self.count = len(parts), sum(sizes)
        return sums

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
        """Let the open batches be a part, to be written.

        Args:
            sums: of all images so far; copied, because the next batch may change them.
        """
        self.write()
        self._closed = self._open, {name: x.clone() for name, x in sums.items()}
        self._open = []

    def write(self) -> None:
        """Write the part that was closed, if there is one, then the sums of all images up to it.

        Raises:
            UserError: the disk is full; what was written before counts.
        """
        if self._closed is None:
            return
        batches, sums = self._closed
        write_tensors(self._path(self._written), _joined(batches))
        facts = {"parts": str(self._written + 1), "made_with": self._made_with}
        write_tensors(self.folder / "sums.safetensors", sums, facts)
        self._written, self._closed = self._written + 1, None

    def all(self) -> Iterator[dict[str, Tensor]]:
        """Yield images, labels and features of all parts in order, then of the batches since."""
        self.write()
        for k in range(self._written):
            part = read_tensors(self._path(k))
            assert part is not None, f"{self._path(k)} has changed since it was written"
            yield part[0]
        if self._open:
            yield _joined(self._open)

    def remove(self) -> None:
        """Remove every part from the disk."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, k: int) -> Path:
        return self.folder / f"{k:05d}.safetensors"


def _joined(batches: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    batches = list(batches)
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


# An array of an .npz: its shape, its type, and its values in pieces.
Member = tuple[tuple[int, ...], Any, Iterable[NDArray[Any]]]


def write_npz(path: Path, members: Mapping[str, Member]) -> None:
    """Write an .npz without compression: 10,000 images take a minute for 7% less space.

    Args:
        members: name -> shape, type, and the values in order, of which one piece is in memory.

    Raises:
        UserError: the disk is full.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, (shape, dtype, pieces) in members.items():
            head = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, {**head, "shape": shape})
                for piece in pieces:
                    member.write(np.ascontiguousarray(piece, dtype).data)
