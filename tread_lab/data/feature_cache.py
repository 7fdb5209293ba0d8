"""Caches of what frozen encoders make of samples, in a lab: made once, one file for each chunk."""

# B batch, N samples of the split, T tokens of a sample, E width of the features

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tread_lab.data.arrays import write_npy
from tread_lab.records.locks import Busy, exclusive

CHUNK = 64  # samples encoded together, whoever asks, so that a feature depends on its sample
OPEN = 256  # chunks that stay mapped: each holds one of the files that a process may open
_AGAIN = 1.0  # seconds until a cache is looked at again that another process fills

# encode(ids_B) -> features [B, T, E]
Encode = Callable[[Tensor], Tensor]


class FeatureCache:
    """fp16 features [N, T, E], read by memory map.

    The first process fills it before training, in chunks; existing chunks are skipped. Equal data,
    encoder, decoder and preprocessing share one cache in a lab.

    Args:
        caches: folder of the caches of a lab.
        shape: (N, T, E).
        fingerprint: everything that determines the features, by name; its digest names the cache.
        kind: the requesting field of a run; a subfolder of the caches.
    """

    def __init__(
        self, caches: Path, shape: tuple[int, int, int], fingerprint: dict[str, object], kind: str
    ) -> None:
        fingerprint = {**fingerprint, "shape": list(shape), "chunk": CHUNK}
        key = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]
        self.folder, self._shape = caches / kind / key, shape
        self._mapped = functools.lru_cache(OPEN)(self._map)

    @property
    def complete(self) -> bool:
        """Whether every sample is encoded."""
        return not self._open()

    def features(self, ids_B: Tensor) -> Tensor:
        """Return the features [B, T, E] of samples `ids_B`, in fp16."""
        ids = ids_B.numpy()
        features_BTE = np.empty((len(ids), *self._shape[1:]), np.float16)
        for chunk in np.unique(ids // CHUNK).tolist():
            here = ids // CHUNK == chunk
            features_BTE[here] = self._mapped(chunk)[ids[here] % CHUNK]
        return torch.from_numpy(features_BTE)

    def fill(self, encode: Encode) -> Iterator[int]:
        """Compute missing features, yielding the number of finished samples; wait for other
        processes.

        Raises:
            DiskFull: no space; finished chunks remain.
        """
        while not self.complete:
            try:
                with exclusive(self.folder / ".lock", f"the feature cache {self.folder}"):
                    left = sum(map(len, todo := self._open()))
                    for rows in todo:
                        features_BTE = encode(torch.arange(rows.start, rows.stop))
                        x_BTE = features_BTE.to("cpu", torch.float16).numpy()
                        write_npy(self._path(rows.start // CHUNK), x_BTE.shape, np.float16, [x_BTE])
                        left -= len(rows)
                        yield self._shape[0] - left
            except Busy:
                yield self._shape[0] - sum(map(len, self._open()))
                time.sleep(_AGAIN)

    def _open(self) -> list[range]:
        count = self._shape[0]
        chunks = (range(k, min(k + CHUNK, count)) for k in range(0, count, CHUNK))
        return [rows for rows in chunks if not self._path(rows.start // CHUNK).exists()]

    def _path(self, chunk: int) -> Path:
        return self.folder / f"{chunk:06d}.npy"

    def _map(self, chunk: int) -> NDArray[Any]:
        rows: NDArray[Any] = np.load(self._path(chunk), mmap_mode="r")
        return rows
