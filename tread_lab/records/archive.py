"""Archives: one zip file of records, whose names and kinds are checked before it is unpacked."""

from __future__ import annotations

import calendar
import os
import re
import shutil
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from tread_lab.records.durable import DiskFull, writing
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.units import amount

_TEXT = (".json", ".jsonl", ".yaml", ".txt")  # what is worth packing; tensors and pictures are not
_CHUNK = 1 << 20
_FIRST = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file; earlier archives say no other
_MANIFEST = "manifest.json"  # of earlier archives: sizes and digests of all files
_BROKEN = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


def add(packed: ZipFile, name: str, path: Path) -> Iterator[bytes]:
    """Add a file under a name, with its time in UTC; yield what was added, in chunks."""
    written = time.gmtime(path.stat().st_mtime)[:6]
    entry = ZipInfo(name, max(written, _FIRST))
    entry.compress_type = ZIP_DEFLATED if name.endswith(_TEXT) else ZIP_STORED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    with path.open("rb") as source, packed.open(entry, "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            yield chunk


@dataclass(frozen=True)
class Archive:
    """An archive whose list of files has been checked."""

    path: Path
    files: Mapping[str, ZipInfo]

    @property
    def size(self) -> int:
        """The bytes of all files, unpacked."""
        return sum(file.file_size for file in self.files.values())

    def check_room(self, folder: Path) -> None:
        """Refuse an archive that does not fit on the disk where `folder` lies or will lie."""
        place = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(place).free
        if self.size > free:
            sizes = f"{amount(self.size)} unpacked, {amount(free)} are free in {place}"
            raise DiskFull(f"{self.path}: {sizes}; make room, or name another --root")

    def unpack(self, packed: ZipFile, name: str, path: Path) -> Iterator[bytes]:
        """Write a file with its time; yield what was written, in chunks.

        Raises:
            UserError: the file is damaged (CRC); names it.
        """
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            target = path.open("xb")
        with target:
            for chunk in self._chunks(packed, name):
                with writing(path):
                    target.write(chunk)
                yield chunk
        if (written := self.files[name].date_time) > _FIRST:
            os.utime(path, 2 * (calendar.timegm(written),))

    def _chunks(self, packed: ZipFile, name: str) -> Iterator[bytes]:
        try:
            with packed.open(name) as source:
                while chunk := source.read(_CHUNK):
                    yield chunk
        except _BROKEN as error:
            raise self.refused(f"{name} is damaged or changed ({first_line(error)})") from None

    def refused(self, why: str) -> UserError:
        """Return the one line that says why nothing of the archive is imported."""
        return UserError(f"{self.path}: {why}; nothing was imported")


def open_archive(path: Path, expected: re.Pattern[str]) -> Archive:
    """Return an archive of plain files with expected names, each once; nothing is unpacked.

    Raises:
        UserError: it is no archive, is cut off, or holds something else; says what.
    """
    archive = Archive(path, files := {})
    try:
        with ZipFile(path) as packed:
            entries = packed.infolist()
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except _BROKEN as error:
        raise archive.refused(f"cut off, or no archive of a sweep ({first_line(error)})") from None
    for entry in entries:
        name = entry.filename
        if name == _MANIFEST:
            continue
        if name in files or not expected.fullmatch(name):
            again = "holds it twice" if name in files else "no archive of a sweep holds it"
            raise archive.refused(f"{name}: {again}")
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise archive.refused(f"{name} is a link or no plain file")
        files[name] = entry
    return archive
