"""LightningDiT's safetensors: files with latents, latents of the mirrored images, and labels."""

# B batch, n samples of a file, C channels, H height, W width

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.data.stored import ContentFile, Split, Store, wrong

LATENTS, FLIPPED, LABELS = "latents", "latents_flip", "labels"
DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}


class SafetensorsFiles(Store):
    """One split of the samples in a folder's `*.safetensors`, in order of the files' names.

    Each file contains `latents` [n, C, H, W], `labels` [n] and optionally `latents_flip`. Only
    requested samples are read. `statistics.json` or `latents_stats.pt` has the normalization.
    """

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        return [("", file) for file in sorted(path.glob("*.safetensors"))]

    def open(self, split: Split) -> tuple[NDArray[np.integer], tuple[int, ...]]:
        paths = [path for _, path in self.files(self.path)]
        if not paths:
            raise UserError(f"data.path: must contain *.safetensors, got none in {self.path}")
        self._maps = [_mapped(path) for path in paths]
        first = self._maps[0]
        for path, maps in zip(paths, self._maps, strict=True):
            shape = maps[LATENTS].shape
            if shape[1:] != first[LATENTS].shape[1:] or maps.keys() != first.keys():
                raise wrong(path, f"what {paths[0].name} holds", list(shape))
        self.flips = FLIPPED in first
        self._widest = np.result_type(*(maps[LATENTS].dtype for maps in self._maps))
        sizes = np.array([len(maps[LATENTS]) for maps in self._maps])
        self._starts = np.cumsum(sizes) - sizes
        labels_n = np.concatenate([maps[LABELS] for maps in self._maps])
        return labels_n, first[LATENTS].shape[1:]

    def stored(
        self, places: NDArray[np.int64], mirrored: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        files = np.searchsorted(self._starts, places, side="right") - 1
        groups = sorted(set(zip(files.tolist(), mirrored.tolist(), strict=True)))
        stored = np.empty((len(places), *self.shape), self._widest)
        for file, flip in groups:
            here = (files == file) & (mirrored == flip)
            values = self._maps[file][FLIPPED if flip else LATENTS]
            taken = np.take(values, places[here] - self._starts[file], axis=0)
            if len(groups) == 1:
                return taken  # of one file, without another copy
            stored[here] = taken
        return stored


def _mapped(path: Path) -> dict[str, NDArray[Any]]:
    """Map the latents, the mirrored ones and the labels of a file.

    A safetensors file is the length of its header (8 bytes, little-endian), the header (JSON with
    dtype, shape and place of each tensor), and the values.
    """
    maps: dict[str, NDArray[Any]] = {}
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        for name in {LATENTS, FLIPPED, LABELS} & header.keys():
            facts = header[name]
            start, shape = 8 + length + facts["data_offsets"][0], tuple(facts["shape"])
            maps[name] = np.asarray(np.memmap(path, DTYPES[facts["dtype"]], "r", start, shape))
        N, C, H, W = maps[LATENTS].shape
        for name in {LABELS, *maps}:
            wanted = ("i", (N,)) if name == LABELS else ("f", (N, C, H, W))
            if (maps[name].dtype.kind, maps[name].shape) != wanted:
                raise ValueError(f"{name} of {maps[name].dtype} {list(maps[name].shape)}")
    except (OSError, ValueError, LookupError, OverflowError) as error:
        raise wrong(path, f"float {LATENTS} and integer {LABELS}", repr(error)) from None
    return maps
