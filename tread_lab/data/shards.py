"""Latents in webdataset tars: one `latent.npy` and one `cls` a sample, read at random by offset."""

# B batch, N samples of the split, C channels, H height, W width

from __future__ import annotations

import functools
import glob
import os
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.data.npy import read_npy
from tread_lab.data.scaled import Split, Store, split_ids

LATENT, LABEL = "latent.npy", "cls"
BLOCK = 512  # bytes, the unit of a tar
OPEN = 256  # tars of a split that stay open, of the 1,024 files that a process usually may


class Member(NamedTuple):
    """A file in a tar: `folder/000001.latent.npy` has the key `folder/000001`, the part
    `latent.npy` in small letters, its first byte and length, and its content where that was asked
    for."""

    key: str
    part: str
    offset: int
    size: int
    content: bytes


def tars_of(path: Path) -> list[Path]:
    """Return the tars in a folder or of a glob, in order of their names."""
    folder = path.expanduser()
    pattern = glob.escape(str(folder)) if folder.exists() else str(folder)
    if folder.is_dir():
        pattern = f"{pattern}/*.tar"
    names = glob.glob(pattern)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    return sorted(Path(name).absolute() for name in names)


def members(tar: Path, parts: Collection[str], read: Collection[str] = ()) -> Iterator[Member]:
    """Yield the members of a tar whose part is one of `parts`, with the content of those in `read`.

    tarfile takes a header it cannot parse for the end of the archive, so the end is looked at.

    Raises:
        UserError: the tar is damaged or compressed.
    """
    try:
        with tar.open("rb") as file:
            yield from _members(file, parts, read)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise bad_tar(tar, f"it is damaged or no uncompressed tar ({error})") from None


def bad_tar(tar: Path, what: str) -> UserError:
    """Return the error of a tar that cannot be used."""
    return UserError(f"data.path: {tar}: {what}; make this tar again or move it away")


def _members(file: IO[bytes], parts: Collection[str], read: Collection[str]) -> Iterator[Member]:
    end = 0
    with tarfile.open(fileobj=file, mode="r:") as archive:
        for info in archive:
            end = info.offset_data + -(-info.size // BLOCK) * BLOCK
            folder, slash, name = info.name.rpartition("/")
            key, _, part = name.partition(".")
            part = part.lower()
            if not info.isreg() or part not in parts:
                continue
            content = b""
            if part in read:
                file.seek(info.offset_data)
                content = file.read(info.size)
            yield Member(folder + slash + key, part, info.offset_data, info.size, content)
    file.seek(end)
    if file.read(BLOCK).strip(b"\0"):
        raise ValueError(f"no header at byte {end}")


class Place(NamedTuple):
    """Where one sample lies: number of the tar, first byte and length of its latent, its label."""

    tar: int
    offset: int
    size: int
    label: int


class _OpenTar:
    """A tar that all threads read from at once; closed with the last that holds it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file, size, offset)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


class TarShards(Store):
    """One split of the samples in a folder of tars, or in the tars that a glob names.

    Tars are taken in order of their names, samples in order of their place; `split_ids` holds some
    out. The first opening in a process reads every header (about half a minute for a million
    samples); later ones read those of changed tars. Only the bytes of the samples asked for are
    read after that, from any thread or process.

    Raises:
        UserError: there are no tars, or one of them is damaged or holds something else.
    """

    def __init__(self, spec: DataSpec, split: Split) -> None:
        self._tars = _tars(spec.path)
        self._opened = functools.lru_cache(OPEN)(_OpenTar)
        rows = [_indexed(tar) for tar in self._tars]
        numbers = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
        table = np.column_stack([numbers, np.concatenate(rows)])  # of `Place`s
        self._table = table[split_ids(len(table), split)]
        self.shape = self._latent(Place(*table[0].tolist())).shape
        self._latents(table[np.unique(table[:, 2], return_index=True)[1]])  # of each length one
        self.labels: NDArray[np.int64] = np.ascontiguousarray(self._table[:, 3])

    def read(
        self, ids: NDArray[np.int64], mirrored: NDArray[np.bool_] | None = None
    ) -> NDArray[np.floating]:
        return self._latents(self._table[ids])

    def _latents(self, rows: NDArray[np.int64]) -> NDArray[np.floating]:
        places = [Place(*row) for row in rows.tolist()]
        latents = [self._latent(place) for place in places]
        for place, latent in zip(places, latents, strict=True):
            if latent.shape != self.shape:
                raise self._damaged(place, f"{list(latent.shape)}")
        return np.stack(latents)

    def _latent(self, place: Place) -> NDArray[np.floating]:
        try:
            tar = self._opened(self._tars[place.tar])
            latent: NDArray[np.floating] = read_npy(tar.read(place.offset, place.size))
        except (OSError, ValueError, EOFError) as error:
            raise self._damaged(place, str(error)) from None
        if latent.dtype.kind != "f" or latent.ndim != 3:
            raise self._damaged(place, f"{latent.dtype} {list(latent.shape)}")
        return latent

    def _damaged(self, place: Place, found: str) -> UserError:
        what = f"the {LATENT} at byte {place.offset} must be floats [C, H, W] as others"
        return bad_tar(self._tars[place.tar], f"{what}, got {found}")


def _tars(path: str | None) -> list[Path]:
    if path is None or not (tars := tars_of(Path(path))):
        found = "" if path is None else f" that holds tars, got {path}"
        raise UserError(f"data.path: give the folder or a glob such as 'data/*.tar'{found}")
    return tars


def _indexed(tar: Path) -> NDArray[np.int64]:
    """The samples [n, (offset, size, label)] of one tar; read once while size and time stay."""
    try:
        facts = tar.stat()
    except OSError as error:
        raise bad_tar(tar, f"it cannot be read ({error.strerror})") from None
    return _rows(tar, facts.st_size, facts.st_mtime_ns)


@functools.cache
def _rows(tar: Path, size: int, changed: int) -> NDArray[np.int64]:
    return np.array(list(_index(tar)), dtype=np.int64).reshape(-1, 3)


def _index(tar: Path) -> Iterator[tuple[int, int, int]]:
    """(offset, size, label) of the samples of one tar, in order of their first member."""
    latents: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    for member in members(tar, (LATENT, LABEL), read=(LABEL,)):
        if member.part == LATENT:
            latents[member.key] = (member.offset, member.size)
        else:
            labels[member.key] = label_of(tar, member)
    if latents.keys() != labels.keys():
        odd = sorted(latents.keys() ^ labels.keys())[0]
        raise bad_tar(tar, f"sample {odd!r} lacks its {LABEL if odd in latents else LATENT}")
    for key, (offset, size) in latents.items():
        yield offset, size, labels[key]


def label_of(tar: Path, member: Member) -> int:
    """Return the whole number that a member of a tar holds."""
    try:
        return int(member.content)
    except ValueError:
        found = f"holds {member.content[:20]!r}, no whole number"
        raise bad_tar(tar, f"{member.key}.{LABEL} {found}") from None
