"""LightningDiT's safetensors: files with latents, latents of the mirrored images, and labels."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.scaled import Split, Store, split_ids
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError, first_line

LATENTS, FLIPPED, LABELS = "latents", "latents_flip", "labels"


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
        self._files = [_opened(path) for path in self._paths]
        shapes = [self._shape(number, LATENTS) for number in range(len(self._files))]
        labels = [self._labels(number, shape[0]) for number, shape in enumerate(shapes)]
        for path, shape in zip(self._paths, shapes, strict=True):
            if shape[1:] != shapes[0][1:]:
                found = f"{list(shape[1:])}, not {list(shapes[0][1:])} as in {self._paths[0].name}"
                raise _bad(path, f"its latents are {found}")
        mirrored = [FLIPPED in file.keys() for file in self._files]  # noqa: SIM118 (no mapping)
        for number in np.flatnonzero(mirrored).tolist():
            if self._shape(number, FLIPPED) != shapes[number]:
                raise _bad(self._paths[number], f"{FLIPPED} is not of the shape of {LATENTS}")
        if any(mirrored) and not all(mirrored):
            raise _bad(self._paths[mirrored.index(False)], f"lacks {FLIPPED}, which others have")
        self.flips = all(mirrored)
        self.shape: tuple[int, int, int] = shapes[0][1:]
        sizes = np.array([shape[0] for shape in shapes])
        self._maps = [_mapped(path) for path in self._paths]
        self._starts = np.cumsum(sizes) - sizes
        if sizes.sum() < 2:
            raise UserError(f"data.path: {spec.path} holds {sizes.sum()} samples, too few to split")
        self._ids = split_ids(int(sizes.sum()), split)
        self.labels: NDArray[np.int64] = np.concatenate(labels)[self._ids]

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

    def _shape(self, number: int, name: str) -> tuple[int, int, int, int]:
        if name not in self._files[number].keys():  # noqa: SIM118 (no mapping)
            raise _bad(self._paths[number], f"holds no tensor {name!r}")
        part = self._files[number].get_slice(name)
        shape, dtype = tuple(part.get_shape()), part.get_dtype()
        if len(shape) != 4 or dtype not in ("F16", "F32", "F64"):
            found = f"{dtype} {list(shape)}"
            raise _bad(self._paths[number], f"{name} is {found}, not F16, F32 or F64 [N, C, H, W]")
        return shape[0], shape[1], shape[2], shape[3]

    def _labels(self, number: int, count: int) -> NDArray[np.int64]:
        if LABELS not in self._files[number].keys():  # noqa: SIM118 (no mapping)
            raise _bad(self._paths[number], f"holds no tensor {LABELS!r}")
        labels = self._files[number].get_tensor(LABELS)
        if labels.shape != (count,) or labels.is_floating_point():
            found = f"{labels.dtype} {list(labels.shape)}"
            raise _bad(self._paths[number], f"{LABELS} is {found}, not integers [{count}]")
        array: NDArray[np.int64] = labels.long().numpy()
        return array


def _opened(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise _bad(path, f"is damaged or no safetensors ({first_line(error)})") from None


def _mapped(path: Path) -> dict[str, NDArray[np.floating]]:
    """Map the latents of a file that `safe_open` has found whole.

    A safetensors file is the length of its header (8 bytes, little-endian), the header (JSON with
    dtype, shape and place of each tensor), and the values.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    maps = {}
    for name in {LATENTS, FLIPPED} & header.keys():
        dtype = np.dtype(f"<f{int(header[name]['dtype'][1:]) // 8}")
        start, shape = 8 + length + header[name]["data_offsets"][0], tuple(header[name]["shape"])
        maps[name] = np.asarray(np.memmap(path, dtype, "r", offset=start, shape=shape))
    return maps


def _bad(path: Path, what: str) -> UserError:
    return UserError(f"data.path: {path}: {what}; make this file again or move it away")
