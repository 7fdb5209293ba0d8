"""Latents in webdataset tars: one `latent.npy` and one `cls` a sample, read at random by offset."""

# B batch, C channels, H height, W width

from __future__ import annotations

import functools
import glob
import os
import tarfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tread_lab.config.errors import UserError
from tread_lab.data.stored import ContentFile, OneFileEach, Split, wrong
from tread_lab.records.durable import modified

LATENT, LABEL = "latent.npy", "cls"
BLOCK = 512  # bytes, the unit of a tar
OPEN = 256  # tars of a split that stay open, of the 1,024 files that a process usually may


class Member(NamedTuple):
    """A file in a tar: `folder/000001.latent.npy` has the key `folder/000001`, the part
    `latent.npy` in small letters, its first byte and length, and its content if requested."""

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

    The end is checked, because tarfile treats an invalid header as the end of the archive.

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
    return UserError(f"data.path: {tar}: {what}. Try making this tar again or moving it away.")


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


class _OpenTar:
    """A tar that all threads read from at once; closed with the last that holds it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file, size, offset)

    def __del__(self) -> None:
        os.close(self._file)


class TarShards(OneFileEach):
    """One split of the samples in a folder of tars, or in the tars that a glob names.

    Tars are ordered by name, samples by position; `split_ids` chooses held-out samples. The first
    opening in a process reads every header (half a minute per million samples), later openings only
    the headers of changed tars. Afterwards only requested samples are read, from any thread or
    process.
    """

    @staticmethod
    def files(path: Path) -> Iterable[ContentFile]:
        return [("", tar) for tar in tars_of(path)]

    def open(self, split: Split) -> tuple[NDArray[np.integer], tuple[int, ...]]:
        self._tars = tars_of(self.path)
        if not self._tars:
            wanted = "must be a folder of tars or a glob such as 'data/*.tar'"
            raise UserError(f"data.path: {wanted}, got {self.path}")
        self._opened = functools.lru_cache(OPEN)(_OpenTar)
        rows = [_index(tar, modified(tar)) for tar in self._tars]
        if not sum(map(len, rows)):
            raise wrong(self.path, f"samples of .{LATENT} and .{LABEL}", "none")
        numbers = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
        # of each sample the number of its tar, first byte and length of its latent, its label
        self._table = np.column_stack([numbers, np.concatenate(rows)])
        shape = self.latent(0).shape
        for place in np.unique(self._table[:, 2], return_index=True)[1]:
            self.latent(place)  # of each length one
        return self._table[:, 3], shape

    def content(self, place: int) -> bytes:
        tar, offset, size, _ = self._table[place].tolist()
        return self._opened(self._tars[tar]).read(offset, size)

    def name(self, place: int) -> str:
        tar, offset, *_ = self._table[place].tolist()
        return f"{self._tars[tar]}: the {LATENT} at byte {offset}"


@functools.cache
def _index(tar: Path, changed: float | None) -> NDArray[np.int64]:
    """[n, (offset, size, label)] of the samples of one tar, in order of their first member; read
    once while its time stays."""
    latents: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    for member in members(tar, (LATENT, LABEL), read=(LABEL,)):
        if member.part == LATENT:
            latents[member.key] = (member.offset, member.size)
        else:
            labels[member.key] = label_of(tar, member)
    if odd := sorted(latents.keys() ^ labels.keys()):
        raise bad_tar(tar, f"sample {odd[0]!r} lacks its {LABEL if odd[0] in latents else LATENT}")
    rows = [(*place, labels[key]) for key, place in latents.items()]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def label_of(tar: Path, member: Member) -> int:
    """Return the integer label in a member of a tar."""
    try:
        return int(member.content)
    except ValueError:
        found = f"holds {member.content[:20]!r}, no whole number"
        raise bad_tar(tar, f"{member.key}.{LABEL} {found}") from None
