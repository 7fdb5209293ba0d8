"""A packed data set under way: beside its place until it is whole, made by several processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.data.npy import npy_header
from tread_lab.data.resumable import STORED, TO_COME, Array, ResumableArrays
from tread_lab.records.durable import FULL, replacing, writing
from tread_lab.records.locks import Busy, exclusive
from tread_lab.specs.errors import UserError, shown

UNDER_WAY = ".building"  # folder of what is not whole yet
LOCK = ".lock"
_DIGESTS = {  # entries of a plan whose values tell a reader nothing
    "names": "other images, labels or captions",
    "encoder": "another autoencoder",
    "content": "other content",
    "heldout": "other held-out samples",
}
_WAIT, _WAITS = 0.5, 120  # seconds between two looks at a lock, and how many before giving up
_COPIED = 4096  # samples that are moved at once where damaged ones are left out


class Steps(NamedTuple):
    """How many samples are done of all that this process makes, and how many are damaged."""

    done: int
    total: int
    damaged: int = 0


class Build(ResumableArrays):
    """Arrays of `count` samples that come into being beside their place.

    Room for all of them is taken at once, so that a disk that is too small is known at the start.

    Args:
        destination: where the arrays will be; until then they lie in its folder `.building`.
        plan: everything that decides the content. A build goes on only under an equal plan.

    Raises:
        UserError: the folder holds the beginning of something else.
        DiskFull: the arrays do not fit.
    """

    def __init__(
        self, destination: Path, plan: Mapping[str, object], arrays: Mapping[str, Array], count: int
    ) -> None:
        fingerprint = {**plan, "samples": count}
        super().__init__(destination / UNDER_WAY, fingerprint, arrays, count, option="")
        self.destination = destination
        writable(destination)
        with self.alone():
            self._begin()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process begins or finishes this build, and hold them off."""
        with contextlib.ExitStack() as stack:
            for attempt in range(_WAITS + 1):
                try:
                    lock = exclusive(self.destination / LOCK, str(self.destination))
                    stack.enter_context(lock)
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
        return exclusive(self.folder / f"{k}-of-{n}.lock", f"part {k}/{n} of {self.destination}")

    def finish(self) -> NDArray[np.int64]:
        """Put the arrays in their place without damaged samples; return those that are kept.

        It may be repeated after it was stopped anywhere. What tells that all is whole has to be
        written next; `clear` then removes what is left.
        """
        marks = self.marks()
        assert (marks != TO_COME).all()
        kept = np.flatnonzero(marks == STORED)
        with writing(self.destination, ""):
            for name in self.arrays:
                if (path := self.path(name)).exists():
                    if len(np.load(path, mmap_mode="r")) != len(kept):
                        self._compact(name, kept)
                    path.replace(self.destination / path.name)
        return kept

    def _begin(self) -> None:
        stored = self.stored_fingerprint
        if stored is None:
            for name in self.arrays:
                if (self.destination / f"{name}.npy").exists():
                    there = f"{self.destination} holds {name}.npy already"
                    raise UserError(f"{there}; choose another folder, or remove that file")
            self.begin("samples")
            with writing(self.destination, ""):
                for name in self.arrays:
                    _reserve(self.path(name))
        elif stored != self.fingerprint:
            other = difference(stored, self.fingerprint)
            raise UserError(f"{self.destination} holds the beginning of a data set with {other}")

    def _compact(self, name: str, kept: NDArray[np.int64]) -> None:
        """Replace an array under way by its rows `kept`."""
        whole = np.load(self.path(name), mmap_mode="r")
        with replacing(self.path(name)) as path, path.open("wb") as file:
            file.write(npy_header(whole.dtype, (len(kept), *whole.shape[1:])))
            for k in range(0, len(kept), _COPIED):
                file.write(whole[kept[k : k + _COPIED]].data)


def clear(destination: Path) -> None:
    """Remove what only the making of a data set needed."""
    shutil.rmtree(destination / UNDER_WAY, ignore_errors=True)
    (destination / LOCK).unlink(missing_ok=True)


def writable(folder: Path) -> None:
    """Make a folder, or refuse it where nothing can be written."""
    with writing(folder, ""):
        folder.mkdir(parents=True, exist_ok=True)
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


def _reserve(path: Path) -> None:
    """Take the room of a file now; file systems that cannot do so are let be."""
    with path.open("r+b") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except OSError as error:
            if error.errno in FULL:
                raise
