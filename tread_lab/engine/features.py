"""Caches of what frozen encoders make of samples, in a lab: made once, chunk by chunk, on disk."""

# B batch, N samples of the split, T tokens of a sample, E width of the features

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.records.durable import DiskFull, disk_error, write_json
from tread_lab.records.locks import Busy, exclusive, is_held
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount

CHUNK = (
    64  # samples that are encoded together, whoever asks, so that a feature depends on its sample
)
_FEATURES = "features.f16"
_WHOLE, _SUMMED = 1, 2  # marks of a chunk; earlier versions wrote no checksums
_AGAIN = 1.0  # seconds until a cache is looked at again that another process fills

# encode(ids_B) -> features [B, T, E]
Encode = Callable[[Tensor], Tensor]


class FeatureCache:
    """fp16 features [N, T, E] in one file, read by memory map; chunks that are whole are marked.

    Each sample's features have a checksum, which is compared where this process reads them first.
    It is filled before training by whoever comes first, chunk by chunk, and goes on where it was
    stopped. Equal data, images, encoder, decoder and preprocessing are one cache in a lab.

    Args:
        folder: where the caches of a lab lie.
        shape: (N, T, E).
        made_with: everything that decides the features, by name; its digest names the cache.
        kind: the field of a run that wants them; a folder within that of the caches.
    """

    def __init__(
        self,
        folder: Path,
        shape: tuple[int, int, int],
        made_with: dict[str, object],
        kind: str,
    ) -> None:
        self.shape, self.kind = shape, kind
        self.made_with = {**made_with, "shape": list(shape), "chunk": CHUNK}
        key = hashlib.sha256(json.dumps(self.made_with, sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / kind / key
        self._features_path, self._marks_path = self.path / _FEATURES, self.path / "whole.u8"
        self._sums_path = self.path / "crc.u32"
        self._map_NTE: NDArray[np.float16] | None = None
        self._sums_N: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._unread_N: NDArray[np.bool_] = np.empty(0, bool)  # samples to be compared yet
        self._opening = threading.Lock()  # batches are read by several threads

    @property
    def disk_bytes(self) -> int:
        """The size of the whole file: 2 N T E."""
        return 2 * int(np.prod(self.shape))

    @property
    def complete(self) -> bool:
        """Whether every sample has its features."""
        return bool(self._marks().all())

    def take(self, ids_B: Tensor) -> Tensor:
        """Return the features [B, T, E] of samples `ids_B`, in fp16.

        Raises:
            UserError: they are not what was written.
        """
        with self._opening:
            if self._map_NTE is None:
                assert self.complete
                self._open()
        assert self._map_NTE is not None
        ids = ids_B.numpy()
        features_BTE = self._map_NTE[ids]
        for row in np.flatnonzero(self._unread_N[ids]).tolist():
            if zlib.crc32(features_BTE[row]) != self._sums_N[ids[row]]:
                raise UserError(
                    f"{self.kind}: the features of sample {ids[row]} in {self._features_path} are"
                    f" damaged (checksum); remove {self.path}, and they are computed again"
                )
        self._unread_N[ids] = False
        return torch.from_numpy(features_BTE)

    def _open(self) -> None:
        """Map the file, and read the checksums; chunks of earlier versions have none."""
        N, marks = self.shape[0], self._stored_marks()
        self._sums_N, self._unread_N = np.zeros(N, np.uint32), np.zeros(N, bool)
        if (marks == _SUMMED).any():
            self._sums_N = np.fromfile(self._sums_path, np.uint32)
            self._unread_N = np.repeat(marks == _SUMMED, CHUNK)[:N]
        self._map_NTE = np.memmap(self._features_path, np.float16, "r", shape=self.shape)

    def fill(self, encode: Encode) -> Iterator[int]:
        """Compute what is missing, yielding the samples that are done; wait for another process.

        Raises:
            DiskFull: there is no room for it; says how much it needs. What is done stays.
        """
        while not self.complete:
            try:
                with exclusive(self.path / ".lock", f"the feature cache {self.path}"):
                    yield from self._fill(encode)
            except Busy:
                yield self._done()
                time.sleep(_AGAIN)

    def _fill(self, encode: Encode) -> Iterator[int]:
        try:
            write_json(self.path / "made_with.json", self.made_with)
            marks = self._marks()
            self._check_room(int((~marks).sum()))
            sizes = {
                self._features_path: self.disk_bytes,
                self._sums_path: 4 * self.shape[0],
                self._marks_path: len(marks),
            }
            with ExitStack() as files:
                features, sums, whole = (files.enter_context(_sized(*s)) for s in sizes.items())
                for chunk in np.flatnonzero(~marks).tolist():
                    encoded = self._encoded(encode, chunk)
                    _write(features.fileno(), encoded, self._chunk_bytes * chunk)
                    _write(sums.fileno(), self._summed(encoded), 4 * CHUNK * chunk)
                    _write(whole.fileno(), bytes([_SUMMED]), chunk)  # after what it stands for
                    yield self._done()
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _encoded(self, encode: Encode, chunk: int) -> bytes:
        ids_B = torch.arange(chunk * CHUNK, min((chunk + 1) * CHUNK, self.shape[0]))
        features_BTE = encode(ids_B)
        assert features_BTE.shape == (len(ids_B), *self.shape[1:]), features_BTE.shape
        return features_BTE.to("cpu", torch.float16).contiguous().numpy().tobytes()

    def _summed(self, encoded: bytes) -> bytes:
        """Return the checksum of each sample of a chunk."""
        each = 2 * self.shape[1] * self.shape[2]
        parts = (encoded[start : start + each] for start in range(0, len(encoded), each))
        return np.array([zlib.crc32(part) for part in parts], np.uint32).tobytes()

    @property
    def _chunk_bytes(self) -> int:
        return 2 * CHUNK * self.shape[1] * self.shape[2]

    def _marks(self) -> NDArray[np.bool_]:
        """Which chunks are whole."""
        return self._stored_marks() >= _WHOLE

    def _stored_marks(self) -> NDArray[np.uint8]:
        marks = np.zeros(-(-self.shape[0] // CHUNK), np.uint8)
        if self._marks_path.exists() and self._features_path.exists():
            stored = np.fromfile(self._marks_path, np.uint8)[: len(marks)]
            marks[: len(stored)] = stored
        return marks

    def _done(self) -> int:
        return min(int(self._marks().sum()) * CHUNK, self.shape[0])

    def _check_room(self, chunks: int) -> None:
        need, free = chunks * self._chunk_bytes, shutil.disk_usage(self.path).free
        if need > free:
            raise DiskFull(
                f"{self.kind}: the features of {self.shape[0]:,} samples need {amount(need)} more"
                f" in {self.path}, and {amount(free)} are free; make room, name another --root,"
                " or choose a smaller encoder"
            )


def removable_caches(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the caches that no process fills, with their sizes.

    Args:
        folder: where the caches of a lab lie.
    """
    for path in sorted(features.parent for features in folder.glob(f"*/*/{_FEATURES}")):
        if not is_held(path / ".lock"):
            yield path, sum(file.stat().st_size for file in path.iterdir() if file.is_file())


def _sized(path: Path, size: int) -> BinaryIO:
    """Open a file of `size` bytes to write into it; what it holds already stays."""
    with path.open("ab"):
        pass
    os.truncate(path, size)
    return path.open("r+b")


def _write(file: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset` and wait until it is on the disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    os.fsync(file)
