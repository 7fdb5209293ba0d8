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

from tread_lab.data.captions import CAPTIONS, Captions, read_captions
from tread_lab.data.scaled import Split, Store, split_ids
from tread_lab.records.durable import read_json, write_json
from tread_lab.specs.data import DataSpec
from tread_lab.specs.errors import UserError

# numpy's ways of not reading a file; TypeError: an .npy that calls itself .npz
UNREADABLE = (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error)


HELDOUT = "heldout_"
MANIFEST = "manifest.json"  # what was stored, from what, with the checksum of every file
FORMAT = "tread-lab packed arrays 1"
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
        moments = _array(path, "latents") is None and _array(path, "moments") is not None
        name = "moments" if moments else "latents"
        own = _array(path, f"{HELDOUT}{name}") is not None
        other = f"{HELDOUT}{'latents' if moments else 'moments'}"
        if not own and _array(path, other) is not None:
            raise UserError(
                f"data.path: {path} holds {other}, and {name} to train on; hold out {name}"
                f" ({HELDOUT}{name}), or move {other} away"
            )
        self.own_heldout = own  # whether arrays of its own are held out
        prefix = HELDOUT if own and split == "heldout" else ""
        self._stored = _latents(path, f"{prefix}{name}")
        self._flipped = _flipped(path, f"{prefix}{name}_flip", self._stored)
        labels_n = _labels(path, f"{prefix}labels", len(self._stored))
        self._images = _images(path, f"{prefix}images", len(labels_n))
        self._ids = np.arange(len(labels_n)) if own else split_ids(len(labels_n), split)
        self._captions = path / f"{prefix}{CAPTIONS}"
        self.posterior = "log_variance" if moments else "none"
        self.flips = self._flipped is not None
        channels, *sides = self._stored.shape[1:]
        if moments and channels % 2:
            raise _wrong(path, name, self._stored, "means and log-variances [N, 2C, H, W]")
        self.shape: tuple[int, int, int] = (channels // 2 if moments else channels, *sides)
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
    path = folder / MANIFEST
    if not path.exists():
        return None
    tree = read_json(path)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise UserError(f"{path} is damaged or no manifest of {FORMAT!r}; make the data again")
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


def heldout_arrays(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield name and content of every array of held-out samples.

    Raises:
        UserError: one is damaged.
    """
    for name in (f"{HELDOUT}{name}" for name in ARRAYS):
        if (array := _array(path, name)) is not None:
            yield name, array


def _latents(path: Path, name: str) -> NDArray[np.floating]:
    array = _present(path, name)
    if array.ndim != 4 or array.dtype.kind != "f" or len(array) < 2:
        raise _wrong(path, name, array, "floats [N, C, H, W] with N > 1")
    return array


def _flipped(path: Path, name: str, stored: NDArray[Any]) -> NDArray[np.floating] | None:
    array = _array(path, name)
    if array is not None and (array.dtype != stored.dtype or array.shape != stored.shape):
        wanted = f"{stored.dtype} {list(stored.shape)}, one for each latent"
        raise _wrong(path, name, array, wanted)
    return array


def _images(path: Path, name: str, count: int) -> NDArray[np.uint8] | None:
    array = _array(path, name)
    if array is not None and (array.dtype != np.uint8 or array.ndim != 4 or len(array) != count):
        wanted = f"uint8 [{count}, 3, height, width], one for each latent"
        raise _wrong(path, name, array, wanted)
    return array


def _labels(path: Path, name: str, count: int) -> NDArray[np.integer]:
    array = _present(path, name)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise _wrong(path, name, array, f"integers [{count}], one for each latent")
    return array


def _wrong(path: Path, name: str, array: NDArray[Any], wanted: str) -> UserError:
    found = f"{array.dtype} {list(array.shape)}"
    return UserError(f"data.path: {name} in {path} must be {wanted}, but is {found}")


def _present(path: Path, name: str) -> NDArray[Any]:
    array = _array(path, name)
    if array is None:
        missing = f"there is no {path}/{name}.npy"
        if path.suffix == ".npz":
            missing = f"{path} holds no array '{name}'"
        raise UserError(f"data.path: {missing}; `latents` and `labels` are needed")
    return array


def _array(path: Path, name: str) -> NDArray[Any] | None:
    """Return the array `name`, `None` if the file has none; never a pickle."""
    source = path if path.suffix == ".npz" else path / f"{name}.npy"
    try:
        if path.suffix != ".npz":
            if not source.exists():
                return None
            return np.asarray(np.load(source, mmap_mode="r", allow_pickle=False))
        with source.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays[name] if name in arrays.files else None
    except FileNotFoundError:
        raise UserError(f"data.path: there is no {source}") from None
    except UNREADABLE as error:
        raise UserError(f"data.path: {source} is damaged or no plain array: {error}") from None
