"""Arrays in files: small .npy read quickly, large ones written in pieces, batches one by one."""

from __future__ import annotations

import functools
import io
import json
import math
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import Unavailable
from tread_lab.records.durable import read_json, replacing, write_json

_MADE_WITH = "made_with.json"

# An array: its shape, its type, and its values in pieces.
Member = tuple[tuple[int, ...], Any, Iterable[NDArray[Any]]]


def read_npy(content: bytes) -> NDArray[Any]:
    """Return the read-only array of an .npy file of format 1.0.

    Equal headers are parsed once: parsing takes longer than reading a latent.

    Raises:
        ValueError: a truncated .npy file or a pickle.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    shape, fortran, dtype = _header(content[:start])
    values = np.frombuffer(content, dtype, math.prod(shape), start)
    return values.reshape(shape, order="F" if fortran else "C")


@functools.lru_cache(maxsize=64)
def _header(content: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, order and type."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an .npy file of a version other than 1.0")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("an .npy file of pickled objects")
    return shape, fortran, dtype


def write_npy(path: Path, *member: Any) -> None:
    """Write an .npy file from pieces, one at a time in memory.

    Raises:
        DiskFull: no space.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        _write(file, *member)


def write_npz(path: Path, members: Mapping[str, Member]) -> None:
    """Write an .npz file without compression, which would save 7% of the space and take a minute
    for 10,000 images.

    Args:
        members: name -> shape, type, and an iterator over pieces of the values.

    Raises:
        DiskFull: no space.
    """
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, member in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                _write(file, *member)


def _write(
    file: IO[bytes], shape: tuple[int, ...], dtype: Any, pieces: Iterable[NDArray[Any]]
) -> None:
    facts = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    np.lib.format.write_array_header_1_0(file, {**facts, "shape": shape})
    for piece in pieces:
        file.write(np.ascontiguousarray(piece, dtype).data)


class Parts:
    """Rows of arrays in a folder, `batch` rows per file.

    Args:
        made_with: settings that determine the content.
        count: rows of all batches.
    """

    def __init__(
        self, folder: Path, made_with: Mapping[str, object], count: int, batch: int
    ) -> None:
        self.folder, self.count, self.batch = folder, count, batch
        self.made_with = json.loads(json.dumps({**made_with, "count": count, "batch": batch}))

    @property
    def stored(self) -> dict[str, Any] | None:
        """Settings of the files in the folder; `None` if there are none."""
        stored: dict[str, Any] | None = read_json(self.folder / _MADE_WITH)
        return stored

    def begin(self) -> None:
        """Remove batches made with other settings."""
        if self.stored != self.made_with:
            self.remove()
            write_json(self.folder / _MADE_WITH, self.made_with)

    def remove(self) -> None:
        """Remove all batches."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def open_batches(self) -> list[range]:
        """Return the missing batches."""
        return [rows for rows in self._batches() if not self._path(rows).exists()]

    @property
    def done(self) -> int:
        """Number of rows made."""
        return self.count - sum(map(len, self.open_batches()))

    def write(self, rows: range, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store one batch, whose arrays may have fewer rows than `rows`.

        Raises:
            DiskFull: no space; earlier batches remain.
            Unavailable: another process makes the same rows with other settings.
        """
        self._check_own()
        with replacing(self._path(rows)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def read(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Yield the arrays of each batch in order, once all are made.

        Raises:
            Unavailable: as in `write`.
        """
        for rows in self._batches():
            self._check_own()
            with np.load(self._path(rows)) as arrays:
                yield arrays

    def join(self, name: str, path: Path) -> None:
        """Write all batches of an array as one .npy file of the widest type."""
        found = [(part[name].shape, part[name].dtype) for part in self.read()]
        count, dtype = sum(shape[0] for shape, _ in found), np.result_type(*(t for _, t in found))
        pieces = (part[name] for part in self.read())
        write_npy(path, (count, *found[0][0][1:]), dtype, pieces)

    def _batches(self) -> Iterator[range]:
        for start in range(0, self.count, self.batch):
            yield range(start, min(start + self.batch, self.count))

    def _path(self, rows: range) -> Path:
        return self.folder / f"{rows.start:08d}.npz"

    def _check_own(self) -> None:
        if self.stored != self.made_with:
            raise Unavailable(
                f"{self.folder}: another process makes these files with other weights or code, or"
                " has finished them. Try the same command again."
            )
