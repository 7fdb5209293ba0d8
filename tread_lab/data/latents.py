"""Latents packed in arrays: a folder with latents.npy and labels.npy, or one .npz with both."""

# B batch, C channels, H height, W width

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.data.content import sha256
from tread_lab.data.stored import Captions, ContentFile, Split, Store, wrong
from tread_lab.records.durable import read_json, write_json

# numpy's ways of not reading a file; TypeError: an .npy that calls itself .npz
UNREADABLE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)

HELDOUT = "heldout_"
CAPTIONS = "captions.jsonl"  # one line for each sample with all its captions
MANIFEST = "manifest.json"  # what was stored, from what, with the checksum of every file
KINDS = {"f": "floats", "iu": "integers", "u": "bytes"}  # of numpy
ARRAYS = ("latents", "latents_flip", "moments", "moments_flip", "labels", "images")


class PackedArrays(Store):
    """One split of arrays `latents` [n, C, H, W] (fp16, fp32, fp64) and `labels` [n] (integers).

    Instead of `latents` there may be `moments` [n, 2C, H, W], the mean and the log-variance of the
    encoder's posterior. Optional arrays in the same order:

    - `latents_flip` (or `moments_flip`), of the mirrored images;
    - `images` [n, 3, height, width] (uint8), the encoded images, for REPA's encoder;
    - `captions.jsonl` (`read_captions`).

    `heldout_latents`, `heldout_labels` and `heldout_captions.jsonl` are the held-out part; without
    them `split_ids` chooses it. Folders are memory-mapped, so that all runs of a machine share one
    copy; an .npz is read into memory.
    """

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        if path.suffix == ".npz":
            return [("npz", path)]
        return [(file.name, file) for file in packed_files(path)]

    def open(self, split: Split) -> tuple[NDArray[np.integer], tuple[int, ...]]:
        held = _arrays(self.path)
        name, other = ("moments", "latents") if "moments" in held else ("latents", "moments")
        if HELDOUT + other in held:
            raise wrong(self.path, f"{HELDOUT}{name} beside {name}", HELDOUT + other)
        self.own_heldout = HELDOUT + name in held
        self._prefix = HELDOUT if self.own_heldout and split == "heldout" else ""
        prefix = self._prefix
        own = {key.removeprefix(prefix): held[key] for key in held if key.startswith(prefix)}
        self._latents: NDArray[np.floating] = self._checked(own, name, "f", 4)
        n = len(self._latents)
        self._flipped, self._images = own.get(f"{name}_flip"), own.get("images")
        self.flips = self._flipped is not None
        if (
            self.flips
            and self._checked(own, f"{name}_flip", "f", 4, n).shape[1:] != (self._latents.shape[1:])
        ):
            raise wrong(self.path, f"mirrored {name} like the others", "another shape")
        if self._images is not None:
            self._checked(own, "images", "u", 4, n)
        self.posterior = "log_variance" if name == "moments" else "none"
        return self._checked(own, "labels", "iu", 1, n), self._latents.shape[1:]

    def _checked(
        self,
        held: Mapping[str, NDArray[Any]],
        name: str,
        kinds: str,
        ndim: int,
        count: int | None = None,
    ) -> NDArray[Any]:
        """Return an array of a kind, so many dimensions and, where it is known, so many samples."""
        array = held.get(name)
        fits = array is not None and array.dtype.kind in kinds and array.ndim == ndim
        if array is None or not fits or count not in (None, len(array)):
            wanted = f"{name} of {KINDS[kinds]} in {ndim} dimensions, {count or 'many'} samples"
            found = "none" if array is None else f"{array.dtype} {list(array.shape)}"
            raise wrong(self.path, wanted, found)
        return array

    def stored(
        self, places: NDArray[np.int64], mirrored: NDArray[np.bool_]
    ) -> NDArray[np.floating]:
        stored = np.take(self._latents, places, axis=0)  # ten times faster than by brackets
        if self._flipped is not None:
            stored[mirrored] = np.take(self._flipped, places[mirrored], axis=0)
        return stored

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        return None if self._images is None else np.take(self._images, self.places[ids], axis=0)

    def captions(self) -> list[Captions] | None:
        stored = read_captions(self.path / f"{self._prefix}{CAPTIONS}", len(self._latents))
        return None if stored is None else [stored[place] for place in self.places.tolist()]


def read_manifest(folder: Path) -> Any:
    """Return the manifest of a folder; `None` without one.

    Raises:
        UserError: it is not JSON.
    """
    return read_json(folder / MANIFEST)


def write_manifest(folder: Path, facts: Mapping[str, object], names: Iterable[str]) -> None:
    """Write the manifest with size and SHA-256 of the files `names`."""
    files = {name: _facts(folder / name) for name in sorted(names)}
    write_json(folder / MANIFEST, {**facts, "files": files})


def renew_manifest(folder: Path, name: str) -> None:
    """Update the file `name` in the manifest of a folder, if there is one."""
    if (manifest := read_manifest(folder)) is not None:
        manifest["files"][name] = _facts(folder / name)
        write_json(folder / MANIFEST, manifest)


def _facts(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def packed_files(folder: Path) -> Iterator[Path]:
    """Yield the files that determine packed data, in a fixed order."""
    arrays = [f"{part}{name}.npy" for part in ("", HELDOUT) for name in ARRAYS]
    names = (*arrays, CAPTIONS, f"{HELDOUT}{CAPTIONS}")
    yield from filter(Path.exists, (folder / name for name in names))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays by name; those of a folder are memory-mapped. Never a pickle."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)
        names = (file.stem for file in packed_files(path) if file.suffix == ".npy")
        return {name: np.load(path / f"{name}.npy", mmap_mode="r") for name in names}
    except UNREADABLE as error:
        raise UserError(f"data.path: {path} must hold plain arrays, got {error}") from None


def read_captions(path: Path, count: int | None = None) -> list[Captions] | None:
    """Return all captions of each sample in their order; `None` without the file.

    A line is `{"captions": ["a dog on a beach", "a wet dog"]}`. An .npz has no captions.

    Args:
        count: number of stored samples, if known.

    Raises:
        UserError: a sample without caption, or an invalid line; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"data.path: {path} must be text, got {error}") from None
    captions = [_captions(path, number, line) for number, line in enumerate(lines, start=1)]
    if count not in (None, len(captions)):
        raise UserError(f"data.path: {path} must have {count} lines, got {len(captions)}")
    return captions


def write_captions(path: Path, captions: Iterable[Sequence[str]]) -> None:
    """Write one line for each sample."""
    with path.open("w", encoding="utf-8") as file:
        for texts in captions:
            file.write(json.dumps({"captions": list(texts)}, ensure_ascii=False) + "\n")


def _captions(path: Path, number: int, line: str) -> Captions:
    try:
        listed = json.loads(line)["captions"]
        texts = tuple(text.strip() for text in listed) if isinstance(listed, list) else ()
    except (ValueError, LookupError, TypeError, AttributeError):
        texts = ()
    if not texts or not all(texts):
        wanted = '{"captions": [...]} with a caption of sample'
        raise UserError(f"data.path: {path}, line {number}: must be {wanted} {number - 1}")
    return texts
