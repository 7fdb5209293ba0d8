"""REPA's feature cache: what the encoder says of every training sample, computed once, on disk."""

# B batch, N samples of the split, T tokens of a sample, E width of the features

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.data.source import Samples
from tread_lab.records.durable import DiskFull, disk_error, write_json
from tread_lab.records.locks import Busy, exclusive
from tread_lab.specs.objective import PREPROCESSING, RepaSpec
from tread_lab.specs.units import amount

CHUNK = (
    64  # samples that are encoded together, whoever asks, so that a feature depends on its sample
)
_AGAIN = 1.0  # seconds until a cache is looked at again that another process fills

# encode(ids_B) -> features [B, T, E]
Encode = Callable[[Tensor], Tensor]


class FeatureCache:
    """fp16 features [N, T, E] in one file, read by memory map; chunks that are whole are marked.

    It is filled before training by whoever comes first, chunk by chunk, and goes on where it was
    stopped. Equal data, images, encoder, decoder and preprocessing are one cache in a lab.

    Args:
        folder: where the caches of a lab lie.
        shape: (N, T, E).
        made_with: everything that decides the features, by name; its digest names the cache.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, int, int], made_with: dict[str, object]
    ) -> None:
        self.shape = shape
        self.made_with = {**made_with, "shape": list(shape), "chunk": CHUNK}
        key = hashlib.sha256(json.dumps(self.made_with, sort_keys=True).encode()).hexdigest()[:16]
        self.path = folder / "repa" / key
        self._features_path, self._marks_path = self.path / "features.f16", self.path / "whole.u8"
        self._map_NTE: NDArray[np.float16] | None = None

    @property
    def disk_bytes(self) -> int:
        """The size of the whole file: 2 N T E."""
        return 2 * int(np.prod(self.shape))

    @property
    def complete(self) -> bool:
        """Whether every sample has its features."""
        return bool(self._marks().all())

    def take(self, ids_B: Tensor) -> Tensor:
        """Return the features [B, T, E] of samples `ids_B`, in fp16."""
        if self._map_NTE is None:
            assert self.complete
            self._map_NTE = np.memmap(self._features_path, np.float16, "r", shape=self.shape)
        return torch.from_numpy(self._map_NTE[ids_B.numpy()])

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
            with self._features_path.open("ab"), self._marks_path.open("ab"):
                pass  # they exist; what they hold stays
            os.truncate(self._features_path, self.disk_bytes)
            os.truncate(self._marks_path, len(marks))
            with self._features_path.open("r+b") as features, self._marks_path.open("r+b") as whole:
                for chunk in np.flatnonzero(~marks).tolist():
                    _write(
                        features.fileno(), self._encoded(encode, chunk), self._chunk_bytes * chunk
                    )
                    _write(whole.fileno(), b"\1", chunk)  # after its features are on the disk
                    yield self._done()
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _encoded(self, encode: Encode, chunk: int) -> bytes:
        ids_B = torch.arange(chunk * CHUNK, min((chunk + 1) * CHUNK, self.shape[0]))
        features_BTE = encode(ids_B)
        assert features_BTE.shape == (len(ids_B), *self.shape[1:]), features_BTE.shape
        return features_BTE.to("cpu", torch.float16).contiguous().numpy().tobytes()

    @property
    def _chunk_bytes(self) -> int:
        return 2 * CHUNK * self.shape[1] * self.shape[2]

    def _marks(self) -> NDArray[np.bool_]:
        """Which chunks are whole."""
        marks = np.zeros(-(-self.shape[0] // CHUNK), bool)
        if self._marks_path.exists() and self._features_path.exists():
            stored = np.fromfile(self._marks_path, np.uint8)[: len(marks)]
            marks[: len(stored)] = stored == 1
        return marks

    def _done(self) -> int:
        return min(int(self._marks().sum()) * CHUNK, self.shape[0])

    def _check_room(self, chunks: int) -> None:
        need, free = chunks * self._chunk_bytes, shutil.disk_usage(self.path).free
        if need > free:
            raise DiskFull(
                f"repa: the features of {self.shape[0]:,} samples need {amount(need)} more in"
                f" {self.path}, and {amount(free)} are free; make room, name another --root,"
                " or choose a smaller encoder"
            )


def feature_cache(
    folder: Path, spec: RepaSpec, samples: Samples, *, side: int, encoder: str
) -> FeatureCache:
    """Return the cache of a run's features, filled or not.

    Args:
        folder: where the caches of a lab lie.
        side: tokens along one side of a sample.
        encoder: digest of the encoder's weights.
    """
    made_with: dict[str, object] = {
        "data": samples.fingerprint,
        "target": spec.target,
        "images": _images(spec, samples),
        "encoder": [spec.encoder, encoder],
        "preprocessing": PREPROCESSING,
    }
    return FeatureCache(folder, (len(samples), side * side, spec.features), made_with)


def _images(spec: RepaSpec, samples: Samples) -> str:
    """Return what the images are: the decoder's digest, or that of some of the stored ones."""
    if spec.target == "decoded":
        return samples.decoder
    sampled = samples.images(torch.linspace(0, len(samples) - 1, min(64, len(samples))).long())
    assert sampled is not None  # check_encoder has refused
    return hashlib.sha256(sampled.contiguous().numpy().tobytes()).hexdigest()[:16]


def _write(file: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset` and wait until it is on the disk."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
    os.fsync(file)
