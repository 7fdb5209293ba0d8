"""Caches of what frozen encoders make of samples, in a lab: made once, chunk by chunk, on disk."""

# B batch, N samples of the split, T tokens of a sample, E width of the features

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tread_lab.data.resumable import TO_COME, Array, ResumableArrays
from tread_lab.records.locks import Busy, exclusive

CHUNK = (
    64  # samples that are encoded together, whoever asks, so that a feature depends on its sample
)
_FEATURES = "features.f16"
_AGAIN = 1.0  # seconds until a cache is looked at again that another process fills

# encode(ids_B) -> features [B, T, E]
Encode = Callable[[Tensor], Tensor]


class FeatureCache(ResumableArrays):
    """fp16 features [N, T, E] in one file, read by memory map.

    It is filled before training by whoever comes first, chunk by chunk, and goes on where it was
    stopped. Equal data, images, encoder, decoder and preprocessing are one cache in a lab.

    Args:
        caches: folder of the caches of a lab.
        shape: (N, T, E).
        fingerprint: everything that decides the features, by name; its digest names the cache.
        kind: the field of a run that wants them; a folder within that of the caches.
    """

    def __init__(
        self, caches: Path, shape: tuple[int, int, int], fingerprint: dict[str, object], kind: str
    ) -> None:
        N, T, E = shape
        fingerprint = {**fingerprint, "shape": list(shape), "chunk": CHUNK}
        key = hashlib.sha256(json.dumps(fingerprint, sort_keys=True).encode()).hexdigest()[:16]
        arrays = {_FEATURES: Array("float16", (T, E), header=False)}
        super().__init__(caches / kind / key, fingerprint, arrays, N, rows_per_mark=CHUNK)

    def features(self, ids_B: Tensor) -> Tensor:
        """Return the features [B, T, E] of samples `ids_B`, in fp16."""
        return torch.from_numpy(self.take(ids_B.numpy())[_FEATURES])

    def fill(self, encode: Encode) -> Iterator[int]:
        """Compute what is missing, yielding the samples that are done; wait for another process.

        Raises:
            DiskFull: there is no room for it; says how much it needs. What is done stays.
        """
        while not self.complete:
            try:
                with exclusive(self.folder / ".lock", f"the feature cache {self.folder}"):
                    yield from self._fill(encode)
            except Busy:
                yield self._done()
                time.sleep(_AGAIN)

    def _fill(self, encode: Encode) -> Iterator[int]:
        self.begin(f"samples' features ({self.folder.parent.name})")
        for rows in self.open_parts(CHUNK):
            features_BTE = encode(torch.arange(rows.start, rows.stop))
            on_cpu_BTE = features_BTE.to("cpu", torch.float16)
            self.write(rows.start, {_FEATURES: on_cpu_BTE.numpy()})
            yield self._done()

    def _done(self) -> int:
        return int(np.count_nonzero(self.marks() != TO_COME))
