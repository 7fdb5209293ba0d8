"""Arrays of fixed rows that are made in parts: resumable, by one process or several."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.npy import npy_header
from tread_lab.records.durable import DiskFull, read_json, write_json, writing
from tread_lab.specs.units import amount

FINGERPRINT, MARKS = "made_with.json", "whole.u8"
TO_COME, STORED, DAMAGED = 0, 1, 2  # marks of rows


@dataclass(frozen=True)
class Array:
    """An array to make: its dtype and the shape of one row.

    Attributes:
        header: whether its file is an .npy, or else the bare numbers.
    """

    dtype: str
    shape: tuple[int, ...]
    header: bool = True

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


class ResumableArrays:
    """Arrays of `count` rows each, one file each in a folder of their own.

    Rows are on the disk before they are marked, so that what is marked is whole whenever the
    process ends; the next one skips it. Several processes may write different rows at once.

    Args:
        fingerprint: everything that decides the content.
        arrays: by name, which with a header is that of the file without `.npy`.
        rows_per_mark: rows that are written together; the last ones may be fewer.
        option: how a command is told of another folder, after `choose another folder`.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, object],
        arrays: Mapping[str, Array],
        count: int,
        *,
        rows_per_mark: int = 1,
        option: str = " with --root",
    ) -> None:
        self.folder, self.arrays, self.count = folder, dict(sorted(arrays.items())), count
        self.fingerprint = json.loads(json.dumps(fingerprint))
        self._per, self._option = rows_per_mark, option
        self._headers = {
            name: npy_header(array.dtype, (count, *array.shape)) if array.header else b""
            for name, array in arrays.items()
        }
        self._maps: dict[str, NDArray[Any]] = {}
        self._opening = threading.Lock()  # batches are read by several threads

    @property
    def stored_fingerprint(self) -> dict[str, Any] | None:
        """The fingerprint of what lies in the folder; `None` if that was never begun."""
        stored: dict[str, Any] | None = read_json(self.folder / FINGERPRINT)
        return stored

    @property
    def complete(self) -> bool:
        """Whether every row is there, or known to be damaged."""
        return self._has_files and bool(self.marks().all())

    def path(self, name: str) -> Path:
        """Return the file of an array."""
        return self.folder / (f"{name}.npy" if self.arrays[name].header else name)

    def marks(self) -> NDArray[np.uint8]:
        """Return what became of each row: TO_COME, STORED or DAMAGED."""
        marks = np.zeros(-(-self.count // self._per), np.uint8)
        if (path := self.folder / MARKS).exists():
            stored = np.fromfile(path, np.uint8)[: len(marks)]
            marks[: len(stored)] = stored
        return np.repeat(marks, self._per)[: self.count]

    def open_parts(self, size: int) -> list[range]:
        """Return the parts of `size` rows, in order, of which not all rows are marked."""
        marks, starts = self.marks(), range(0, self.count, size)
        parts = (range(start, min(start + size, self.count)) for start in starts)
        return [rows for rows in parts if not marks[rows.start : rows.stop].all()]

    def begin(self, what: str) -> None:
        """Make the files in their full size; what they hold already stays if it was begun.

        Args:
            what: the name of the rows, for the line about a full disk.

        Raises:
            UserError: the folder cannot be written.
            DiskFull: the arrays do not fit.
        """
        with writing(self.folder, self._option):
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.stored_fingerprint is None or not self._has_files:
                for path in (self.folder / MARKS, *self._paths):
                    path.unlink(missing_ok=True)
            self._check_free(what)
            for name, array in self.arrays.items():
                if not (path := self.path(name)).exists():
                    path.write_bytes(self._headers[name])
                _resize(path, len(self._headers[name]) + self.count * array.row_bytes)
            _resize(self.folder / MARKS, -(-self.count // self._per))
            write_json(self.folder / FINGERPRINT, self.fingerprint)

    def write(
        self,
        first: int,
        content: Mapping[str, NDArray[Any]],
        marks: NDArray[np.uint8] | None = None,
    ) -> None:
        """Store rows of every array from row `first` on, then their marks.

        Raises:
            DiskFull: there is no room; what was marked before is whole.
        """
        rows = {
            name: np.ascontiguousarray(content[name], dtype=array.dtype)
            for name, array in self.arrays.items()
        }
        count = len(next(iter(rows.values())))
        if marks is None:
            marks = np.full(-(-count // self._per), STORED, np.uint8)
        with writing(self.folder, self._option):
            for name, array in self.arrays.items():
                assert rows[name].shape == (count, *array.shape), (name, rows[name].shape)
                begin = len(self._headers[name]) + first * array.row_bytes
                _write(self.path(name), rows[name].tobytes(), begin)
            _write(self.folder / MARKS, marks.tobytes(), first // self._per)

    def take(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return rows of every array."""
        with self._opening:
            if not self._maps:
                self._maps = {name: self._mapped(name) for name in self.arrays}
        return {name: whole[ids] for name, whole in self._maps.items()}

    @property
    def _has_files(self) -> bool:
        return all(path.exists() for path in self._paths)

    @property
    def _paths(self) -> list[Path]:
        return [self.path(name) for name in self.arrays]

    def _mapped(self, name: str) -> NDArray[Any]:
        array, begin = self.arrays[name], len(self._headers[name])
        shape = (self.count, *array.shape)
        return np.memmap(self.path(name), array.dtype, "r", begin, shape)

    def _check_free(self, what: str) -> None:
        stored = sum(512 * path.stat().st_blocks for path in self._paths if path.exists())
        need = self.count * sum(array.row_bytes for array in self.arrays.values()) - stored
        free = shutil.disk_usage(self.folder).free
        if need > free:
            seen = self.folder.parent if self.folder.name.startswith(".") else self.folder
            raise DiskFull(
                f"{self.count:,} {what} need {amount(need)} more in {seen}, and"
                f" {amount(free)} are free; make room, or choose another folder{self._option}"
            )


def _resize(path: Path, size: int) -> None:
    """Let a file have `size` bytes; what it holds already stays."""
    with path.open("ab"):
        pass
    os.truncate(path, size)


def _write(path: Path, data: bytes, offset: int) -> None:
    view = memoryview(data)
    with path.open("r+b", buffering=0) as file:
        while view:
            written = os.pwrite(file.fileno(), view, offset)
            view, offset = view[written:], offset + written
        os.fsync(file.fileno())
