"""LightningDiT's safetensors: files with latents, latents of the mirrored images, and labels."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.scaled import Split, Store, split_ids

LATENTS, FLIPPED, LABELS = "latents", "latents_flip", "labels"
DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}


class SafetensorsFiles(Store):
    """One split of the samples in a folder's `*.safetensors`, in order of the files' names.

    Each file holds `latents` [n, C, H, W] and `labels` [n], and may hold `latents_flip`. Only the
    samples asked for are read. `statistics.json` or `latents_stats.pt` beside them normalise.

    Raises:
        UserError: there are no such files, or one of them is damaged or holds something else.
    """

    def __init__(self, spec: DataSpec, split: Split) -> None:
        if spec.path is None:
            raise UserError("data.path: give the folder of the safetensors")
        self._paths = sorted(Path(spec.path).expanduser().glob("*.safetensors"))
        if not self._paths:
            raise UserError(f"data.path: no *.safetensors in {spec.path}")
        self._maps = [_mapped(path) for path in self._paths]
        first = self._maps[0]
        for path, maps in zip(self._paths, self._maps, strict=True):
            shape, names = maps[LATENTS].shape, maps.keys()
            if shape[1:] != first[LATENTS].shape[1:] or names != first.keys():
                raise _bad(path, f"must hold what {self._paths[0].name} holds, got {list(shape)}")
        self.flips = FLIPPED in first
        self.shape: tuple[int, int, int] = first[LATENTS].shape[1:]
        sizes = np.array([len(maps[LATENTS]) for maps in self._maps])
        self._starts = np.cumsum(sizes) - sizes
        self._ids = split_ids(int(sizes.sum()), split)
        self.labels: NDArray[np.int64] = np.concatenate([maps[LABELS] for maps in self._maps])
        self.labels = self.labels.astype(np.int64)[self._ids]

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        places = self._ids[ids]
        files = np.searchsorted(self._starts, places, side="right") - 1
        rows = places - self._starts[files]
        flipped = np.zeros(len(ids), bool) if mirrored is None else mirrored
        groups = sorted(set(zip(files.tolist(), flipped.tolist(), strict=True)))
        if len(groups) == 1:
            ((file, flip),) = groups
            return np.take(self._maps[file][FLIPPED if flip else LATENTS], rows, axis=0)
        widest = np.result_type(*(maps[LATENTS] for maps in self._maps))
        stored = np.empty((len(ids), *self.shape), widest)
        for file, flip in groups:
            here = (files == file) & (flipped == flip)
            values = self._maps[file][FLIPPED if flip else LATENTS]
            stored[here] = np.take(values, rows[here], axis=0)
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
        shape = maps[LATENTS].shape
        shapes = {LATENTS: shape, FLIPPED: shape, LABELS: shape[:1]}
        for name in {LABELS, *maps}:
            kind, ndim = ("i", 1) if name == LABELS else ("f", 4)
            found = maps[name]
            if (found.dtype.kind, found.ndim, found.shape) != (kind, ndim, shapes[name]):
                raise ValueError(f"{name} of {found.dtype} {list(found.shape)}")
    except (OSError, ValueError, LookupError, OverflowError) as error:
        raise _bad(path, f"must hold float {LATENTS} and integer {LABELS}, got {error!r}") from None
    return maps


def _bad(path: Path, what: str) -> UserError:
    return UserError(f"data.path: {path}: {what}. Try making this file again.")
