"""Latents packed in arrays: a folder with latents.npy and labels.npy, or one .npz with both."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.caption_files import CAPTIONS, Captions, read_captions
from tread_lab.data.scaled import Split, Store, split_ids
from tread_lab.records.durable import read_json, write_json

# numpy's ways of not reading a file; TypeError: an .npy that calls itself .npz
UNREADABLE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)

HELDOUT = "heldout_"
MANIFEST = "manifest.json"  # what was stored, from what, with the checksum of every file
FORMAT = "tread-lab packed arrays 1"
KINDS = {"floats": "efd", "integers": "bBhHiIlLqQ", "bytes": "B"}  # characters of dtypes
ARRAYS = ("latents", "latents_flip", "moments", "moments_flip", "labels", "images")


class PackedArrays(Store):
    """One split of arrays `latents` [n, C, H, W] (fp16, fp32, fp64) and `labels` [n] (integers).

    Instead of `latents` there may be `moments` [n, 2C, H, W], the mean and the log-variance of the
    encoder's posterior. Beside them, in the same order, may stand

    - `latents_flip` (or `moments_flip`), the same of the mirrored images;
    - `images` [n, 3, height, width] (uint8), what the latents were encoded from, which REPA's
      encoder sees;
    - `captions.jsonl` (`read_captions`).

    Held out is what `heldout_latents` and `heldout_labels` hold, with `heldout_captions.jsonl`
    beside them; where they are absent, `split_ids` chooses. Folders are memory-mapped, so that all
    runs of a machine share one copy; an .npz is read into memory.

    Raises:
        UserError: an array is absent, damaged or of the wrong kind.
    """

    def __init__(self, spec: DataSpec, split: Split) -> None:
        if spec.path is None:
            raise UserError("data.path: give the folder or .npz that holds latents and labels")
        path = Path(spec.path).expanduser()
        held = _arrays(path)
        name = "latents" if "latents" in held or "moments" not in held else "moments"
        parts = {HELDOUT + kind for kind in ("latents", "moments")} & held.keys()
        if parts - {HELDOUT + name}:
            raise UserError(f"data.path: {path} must hold out {name}, got {parts.pop()}")
        self.own_heldout = bool(parts)  # whether arrays of its own are held out
        prefix = HELDOUT if parts and split == "heldout" else ""
        own = {key.removeprefix(prefix): held[key] for key in held if key.startswith(prefix)}
        self._stored: NDArray[np.floating] = _checked(path, own, name, "floats", 4)
        n, channels, height, width = self._stored.shape
        labels_n = _checked(path, own, "labels", "integers", 1, n)
        self._flipped, self._images = own.get(f"{name}_flip"), own.get("images")
        if self._flipped is not None:
            flipped = _checked(path, own, f"{name}_flip", "floats", 4, n)
            if (flipped.shape, flipped.dtype) != (self._stored.shape, self._stored.dtype):
                raise UserError(f"data.path: {name}_flip in {path} must be like {name}")
        if self._images is not None:
            _checked(path, own, "images", "bytes", 4, n)
        self._ids = np.arange(n) if self.own_heldout else split_ids(n, split)
        self._captions = path / f"{prefix}{CAPTIONS}"
        self.flips = self._flipped is not None
        if name == "moments":
            if channels % 2:
                raise UserError(f"data.path: moments in {path} must be [N, 2C, H, W]")
            self.posterior, channels = "log_variance", channels // 2
        self.shape: tuple[int, int, int] = (channels, height, width)
        self.labels: NDArray[np.int64] = labels_n[self._ids].astype(np.int64)

    @property
    def header(self) -> str:
        return f"{super().header} {self._stored.dtype}"

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        places = self._ids[ids]
        stored = np.take(self._stored, places, axis=0)  # ten times faster than by brackets
        if mirrored is not None and self._flipped is not None:
            stored[mirrored] = np.take(self._flipped, places[mirrored], axis=0)
        return stored

    def images(self, ids: NDArray[np.int64]) -> NDArray[np.uint8] | None:
        return None if self._images is None else np.take(self._images, self._ids[ids], axis=0)

    def captions(self) -> list[Captions] | None:
        """Return all captions of each sample of the split, `None` without their file."""
        stored = read_captions(self._captions, len(self._stored))
        return None if stored is None else [stored[place] for place in self._ids.tolist()]


def read_manifest(folder: Path) -> dict[str, object] | None:
    """Return the manifest of a folder; `None` without one.

    Raises:
        UserError: it is damaged, or of another format.
    """
    tree: dict[str, object] | None = read_json(folder / MANIFEST)
    if tree is not None and (not isinstance(tree, dict) or tree.get("format") != FORMAT):
        raise UserError(
            f"{folder / MANIFEST}: must be a manifest of {FORMAT!r}. Try making it anew."
        )
    return tree


def write_manifest(folder: Path, facts: Mapping[str, object], names: Iterable[str]) -> None:
    """Write the manifest with size, time and SHA-256 of the files `names`."""
    files = {name: file_facts(folder / name) for name in sorted(names)}
    write_json(folder / MANIFEST, {"format": FORMAT, **facts, "files": files})


def renew_manifest(folder: Path, name: str) -> None:
    """Say in the manifest of a folder, where it has one, what the file `name` holds now.

    Raises:
        UserError: the manifest is damaged, or cannot be written.
    """
    manifest: Any = read_manifest(folder)
    if manifest is not None:
        manifest["files"][name] = file_facts(folder / name)
        write_json(folder / MANIFEST, manifest)


def file_facts(path: Path) -> dict[str, object]:
    """Return size, time of the last change and SHA-256 of a file."""
    fact = path.stat()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"bytes": fact.st_size, "mtime_ns": fact.st_mtime_ns, "sha256": digest.hexdigest()}


def packed_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder that decide what its packed data are, in a fixed order."""
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


def _checked(
    path: Path,
    held: Mapping[str, NDArray[Any]],
    name: str,
    kind: str,
    ndim: int,
    count: int | None = None,
) -> NDArray[Any]:
    """Return an array of a kind, so many dimensions and, where it is known, so many samples."""
    array = held.get(name)
    if (
        array is None
        or array.dtype.char not in KINDS[kind]
        or array.ndim != ndim
        or len(array) != (count or max(len(array), 2))
    ):
        found = "none" if array is None else f"{array.dtype} {list(array.shape)}"
        wanted = f"{kind} of {ndim} dimensions and {count or 'two or more'} samples"
        raise UserError(f"data.path: {name} in {path} must be {wanted}, got {found}")
    return array
