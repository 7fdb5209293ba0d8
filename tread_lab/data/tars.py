"""Webdataset tars: which there are, and the members of one with their places, to read at random."""

from __future__ import annotations

import glob
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from tread_lab.specs.errors import UserError

BLOCK = 512  # bytes, the unit of a tar


class Member(NamedTuple):
    """A file in a tar: `folder/000001.latent.npy` has the key `folder/000001`, the part
    `latent.npy`, its first byte and length, and its content where that was asked for."""

    key: str
    part: str
    offset: int
    size: int
    content: bytes


def tars_of(path: Path) -> list[Path]:
    """Return the tars in a folder or of a glob, in order of their names."""
    folder = path.expanduser()
    pattern = folder / "*.tar" if folder.is_dir() else folder
    names = glob.glob(str(pattern))  # noqa: PTH207 (Path.glob takes no absolute pattern)
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
