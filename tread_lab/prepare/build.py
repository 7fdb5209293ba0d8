"""Arrays made in chunks: preallocated, resumable, by one process or several, whole or absent."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.records.durable import DiskFull, read_json, write_json
from tread_lab.records.locks import Busy, exclusive
from tread_lab.specs.errors import UserError, shown
from tread_lab.specs.units import amount

UNDER_WAY = ".building"  # folder of what is not whole yet
TO_COME, STORED, DAMAGED = 0, 1, 2  # marks of a sample
LOCK = ".lock"
_DIGESTS = {  # entries of a plan whose values tell a reader nothing
    "names": "other images, labels or captions",
    "encoder": "another autoencoder",
    "content": "other content",
    "heldout": "other held-out samples",
}
_WAIT, _WAITS = 0.5, 120  # seconds between two looks at a lock, and how many before giving up
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_COPIED = 4096  # samples that are moved at once where damaged ones are left out


@dataclass(frozen=True)
class Array:
    """An array to make: its dtype and the shape of one sample."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def sample_bytes(self) -> int:
        """The bytes of one sample."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


class Steps(NamedTuple):
    """How many samples are done of all that this process makes, and how many are damaged."""

    done: int
    total: int
    damaged: int = 0


class Build:
    """Arrays of `count` samples that come into being in a folder, chunk by chunk.

    Room for all of them is taken at once, so that a disk that is too small is known at the start.
    A chunk is on the disk before its samples are marked, so that what is marked is whole whenever
    the process ends; the same build then goes on. Several processes may write at once.

    Args:
        folder: where the arrays will be; until then they lie in its folder `.building`.
        plan: everything that decides the content. A build goes on only under an equal plan.

    Raises:
        UserError: the folder holds the beginning of something else.
        DiskFull: the arrays do not fit.
    """

    def __init__(
        self, folder: Path, plan: Mapping[str, object], arrays: Mapping[str, Array], count: int
    ) -> None:
        self.folder, self.arrays, self.count = folder, dict(arrays), count
        self._place = folder / UNDER_WAY
        self._plan = json.loads(json.dumps({**plan, "samples": count}))
        writable(folder)
        with self.alone():
            self._begin()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process begins or finishes this build, and hold them off."""
        with contextlib.ExitStack() as stack:
            for attempt in range(_WAITS + 1):
                try:
                    stack.enter_context(exclusive(self.folder / LOCK, str(self.folder)))
                    break
                except Busy:
                    if attempt == _WAITS:
                        raise
                    time.sleep(_WAIT)
            yield

    def one_part(self, part: tuple[int, int]) -> contextlib.AbstractContextManager[None]:
        """Hold a part, which a second process must not make at the same time.

        Raises:
            Busy: another process makes it.
        """
        k, n = part
        return exclusive(self._place / f"{k}-of-{n}.lock", f"part {k}/{n} of {self.folder}")

    def chunks(self, size: int, part: tuple[int, int] = (1, 1)) -> list[range]:
        """Return the chunks that part k of n has still to make, in order: each n-th from the k-th
        on, as far as not all of its samples are marked."""
        k, n = part
        marks = self.marks()
        starts = range((k - 1) * size, self.count, n * size)
        whole = (range(start, min(start + size, self.count)) for start in starts)
        return [chunk for chunk in whole if not marks[chunk.start : chunk.stop].all()]

    def write(
        self, chunk: range, content: Mapping[str, NDArray[np.generic]], marks: NDArray[np.uint8]
    ) -> None:
        """Store a chunk of every array, and then its marks.

        Raises:
            DiskFull: there is no room; what was marked before is whole.
        """
        try:
            for name, array in self.arrays.items():
                rows = np.ascontiguousarray(content[name], dtype=array.dtype)
                assert rows.shape == (len(chunk), *array.shape), (name, rows.shape)
                _write_rows(self._path(name), rows, chunk.start)
            _write(self._marks_path, marks.astype(np.uint8).tobytes(), chunk.start)
        except OSError as error:
            raise disk_error(error, self.folder) from error

    def marks(self) -> NDArray[np.uint8]:
        """Return what became of each sample: TO_COME, STORED or DAMAGED."""
        return np.fromfile(self._marks_path, np.uint8)

    def finish(self) -> NDArray[np.int64]:
        """Put the arrays in their place without damaged samples; return those that are kept.

        It may be repeated after it was stopped anywhere. What tells that all is whole has to be
        written next; `clear` then removes what is left.
        """
        marks = self.marks()
        assert (marks != TO_COME).all()
        kept = np.flatnonzero(marks == STORED)
        try:
            for name in self.arrays:
                if self._path(name).exists():
                    if len(np.load(self._path(name), mmap_mode="r")) != len(kept):
                        self._compact(name, kept)
                    self._path(name).replace(self.folder / f"{name}.npy")
        except OSError as error:
            raise disk_error(error, self.folder) from error
        return kept

    def clear(self) -> None:
        """Remove what only the making needed."""
        clear(self.folder)

    def _begin(self) -> None:
        stored = read_json(self._place / "plan.json")
        if stored is None:
            for name in self.arrays:
                if (self.folder / f"{name}.npy").exists():
                    there = f"{self.folder} holds {name}.npy already"
                    raise UserError(f"{there}; choose another folder, or remove that file")
            self._allocate()
            write_json(self._place / "plan.json", self._plan)
        elif stored != self._plan:
            other = difference(stored, self._plan)
            raise UserError(f"{self.folder} holds the beginning of a data set with {other}")

    def _allocate(self) -> None:
        writable(self._place)
        need = self.count * sum(array.sample_bytes for array in self.arrays.values())
        free = shutil.disk_usage(self._place).free
        if need > free:
            raise DiskFull(
                f"{self.count:,} samples need {amount(need)} in {self.folder}, and {amount(free)}"
                " are free; make room, or choose another folder"
            )
        try:
            for name, array in self.arrays.items():
                shape = (self.count, *array.shape)
                np.lib.format.open_memmap(self._path(name), "w+", array.dtype, shape)
                _reserve(self._path(name))
            self._marks_path.write_bytes(bytes(self.count))
        except OSError as error:
            self.clear()
            raise disk_error(error, self.folder) from error

    def _compact(self, name: str, kept: NDArray[np.int64]) -> None:
        """Replace an array under way by its rows `kept`."""
        whole = np.load(self._path(name), mmap_mode="r")
        small_path = self._place / f"{name}.small.npy"
        shape = (len(kept), *self.arrays[name].shape)
        np.lib.format.open_memmap(small_path, "w+", self.arrays[name].dtype, shape)
        _reserve(small_path)
        for k in range(0, len(kept), _COPIED):
            _write_rows(small_path, np.take(whole, kept[k : k + _COPIED], axis=0), k)
        small_path.replace(self._path(name))

    def _path(self, name: str) -> Path:
        return self._place / f"{name}.npy"

    @property
    def _marks_path(self) -> Path:
        return self._place / "marks.u8"


def clear(folder: Path) -> None:
    """Remove what only the making of a data set needed."""
    shutil.rmtree(folder / UNDER_WAY, ignore_errors=True)
    (folder / LOCK).unlink(missing_ok=True)


def writable(folder: Path) -> None:
    """Make a folder, or refuse it where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"cannot write {folder}; choose a folder you may write")


def difference(stored: Mapping[str, object], asked: Mapping[str, object]) -> str:
    """Return the first entry that differs, as `size 256, and 512 is asked for; ...`."""
    for name, other in _DIGESTS.items():
        if stored.get(name) != asked.get(name):
            return f"{other}; choose another folder or remove this one"
    for name in dict.fromkeys((*stored, *asked)):
        if stored.get(name) != asked.get(name):
            was, now = shown(stored.get(name)), shown(asked.get(name))
            return (
                f"{name} {was}, and {now} is asked for; choose another folder, or remove this one"
            )
    return "the same settings"


def disk_error(error: OSError, folder: Path) -> UserError:
    """Return the one line that a failed write becomes."""
    if error.errno in _FULL:
        reason = f"cannot write {folder}: {os.strerror(error.errno or 0)}"
        return DiskFull(f"{reason}; make room and run the same command again")
    return UserError(f"cannot write {folder}: {error.strerror or error}; choose another folder")


def _reserve(path: Path) -> None:
    """Take the room of a file now; file systems that cannot do so are let be."""
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in _FULL:
                raise


def _write_rows(path: Path, rows: NDArray[Any], first: int) -> None:
    """Write rows into an .npy from row `first` on."""
    begin = np.lib.format.open_memmap(path, "r").offset  # of the values
    _write(path, rows.tobytes(), begin + rows[0].nbytes * first)


def _write(path: Path, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset` and wait until it is on the disk."""
    view = memoryview(data)
    with path.open("r+b", buffering=0) as file:
        while view:
            written = os.pwrite(file.fileno(), view, offset)
            view, offset = view[written:], offset + written
        os.fsync(file.fileno())
