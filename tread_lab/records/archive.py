"""Archives: one zip file with a manifest of sizes and SHA-256; checked before it is unpacked."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import tread_lab
from tread_lab.records.checksums import digest, json_text, json_tree
from tread_lab.records.durable import DiskFull, writing
from tread_lab.specs.errors import UserError, first_line
from tread_lab.specs.units import amount

FORMAT = 1  # of archives
MANIFEST = "manifest.json"
_TEXT = (".json", ".jsonl", ".yaml", ".txt")  # what is worth packing; tensors and pictures are not
_CHUNK = 1 << 20
_LARGEST_MANIFEST = 1 << 30
_BROKEN = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


@dataclass(frozen=True)
class ArchiveWriter:
    """Adds files to a zip file, each read once, and at last the manifest."""

    zip: ZipFile
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, path: Path) -> Generator[int, None, None]:
        """Add a file under a name; yield how many more bytes are done."""
        facts, sha256, size = path.stat(), hashlib.sha256(), 0
        with (
            path.open("rb") as source,
            self.zip.open(_entry(name), "w", force_zip64=True) as target,
        ):
            while chunk := source.read(_CHUNK):
                sha256.update(chunk)
                size += target.write(chunk)
                yield len(chunk)
        time = facts.st_mtime_ns
        self.files[name] = {"bytes": size, "sha256": sha256.hexdigest(), "time": time}

    def close(self, **head: Any) -> str:
        """Write the manifest; return the archive's digest, which stands for all its files."""
        made = {"format": FORMAT, "tread_lab": tread_lab.__version__, **head}
        text = json_text({**made, "files": self.files}).encode()
        self.zip.writestr(_entry(MANIFEST), text)
        return digest(text)


def _entry(name: str) -> ZipInfo:
    entry = ZipInfo(name)
    entry.compress_type = ZIP_DEFLATED if name.endswith(_TEXT) else ZIP_STORED
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


@dataclass(frozen=True)
class Archive:
    """An archive whose list of files has been checked; its files are as they are unpacked.

    Attributes:
        head: the manifest without its files.
        files: `bytes`, `sha256` and `time` of every file by name.
        digest: of the manifest, and so of every file.
    """

    path: Path
    head: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    digest: str

    @functools.cached_property
    def size(self) -> int:
        """The bytes of all files, unpacked."""
        return sum(file["bytes"] for file in self.files.values())

    def check_room(self, folder: Path) -> None:
        """Refuse an archive that does not fit on the disk where `folder` lies or will lie."""
        place = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(place).free
        if self.size > free:
            sizes = f"{amount(self.size)} unpacked, {amount(free)} are free in {place}"
            raise DiskFull(f"{self.path}: {sizes}; make room, or name another --root")

    def unpack(
        self, folder: Path, names: Iterable[str], done: int = 0
    ) -> Generator[tuple[int, int], None, int]:
        """Write files below `folder`, with their times; the digest of each is checked.

        Args:
            done: bytes that were unpacked before.

        Yields:
            the bytes that are done, and all of the archive.

        Raises:
            UserError: a file is not what the manifest says; names it.
        """
        with ZipFile(self.path) as packed:
            for name in names:
                path, facts, sha256 = folder / name, self.files[name], hashlib.sha256()
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    target = path.open("xb")
                with target:
                    for chunk in self._chunks(packed, name):
                        sha256.update(chunk)
                        with writing(path):
                            target.write(chunk)
                        done += len(chunk)
                        yield done, self.size
                if sha256.hexdigest() != facts["sha256"]:
                    raise self.refused(f"{name} is damaged or changed (SHA-256)")
                os.utime(path, ns=(facts["time"], facts["time"]))
        return done

    def _chunks(self, packed: ZipFile, name: str) -> Generator[bytes, None, None]:
        try:
            with packed.open(name) as source:
                while chunk := source.read(_CHUNK):
                    yield chunk
        except _BROKEN as error:
            raise self.refused(f"{name} is damaged or changed ({first_line(error)})") from None

    def refused(self, why: str) -> UserError:
        return refused(self.path, why)


def refused(path: Path, why: str) -> UserError:
    """Return the one line that says why nothing of an archive is imported."""
    return UserError(f"{path}: {why}; nothing was imported")


def open_archive(path: Path, expected: re.Pattern[str]) -> Archive:
    """Return an archive whose files have the expected names and sizes; nothing is unpacked.

    Raises:
        UserError: it is no archive of this version, is cut off, or holds something else; says what.
    """
    try:
        with ZipFile(path) as packed:
            entries = packed.infolist()
            size = packed.getinfo(MANIFEST).file_size
            text = packed.read(MANIFEST) if size <= _LARGEST_MANIFEST else b""
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except KeyError:
        raise refused(path, f"cut off, or no archive of a sweep (no {MANIFEST})") from None
    except _BROKEN as error:
        raise refused(path, f"cut off, or no archive of a sweep ({first_line(error)})") from None
    try:
        head = json_tree(text.decode())
    except (ValueError, RecursionError):
        raise refused(path, f"{MANIFEST} is damaged or changed") from None
    files = head.pop("files", None) if isinstance(head, dict) else None
    if not isinstance(files, dict):
        raise refused(path, f"{MANIFEST} lists no files")
    if head.get("format") != FORMAT:
        made = f"by tread-lab {json.dumps(head.get('tread_lab'))}"
        raise refused(path, f"its format is not {FORMAT} (made {made}; this is another version)")
    _check_names(path, entries, files, expected)
    return Archive(path, head, files, digest(text))


def _check_names(
    path: Path, entries: Iterable[ZipInfo], files: Mapping[str, Any], expected: re.Pattern[str]
) -> None:
    """Refuse all but plain files that the manifest lists, each once, of their size."""
    seen = {MANIFEST}
    for entry in entries:
        name = entry.filename
        if name == MANIFEST and entry.orig_filename == MANIFEST:
            continue
        if name in seen or not expected.fullmatch(name):
            again = "holds it twice" if name in seen else "no archive of a sweep holds it"
            raise refused(path, f"{name}: {again}")
        seen.add(name)
        if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
            raise refused(path, f"{name} is a link or no plain file")
        facts = files.get(name)
        facts = facts if isinstance(facts, dict) else {}
        whole = facts.get("bytes") == entry.file_size and isinstance(facts.get("sha256"), str)
        dated = type(time := facts.get("time")) is int and 0 <= time < 1 << 62
        if not (whole and dated):
            raise refused(path, f"{name} is not what {MANIFEST} says")
    if missing := files.keys() - seen:
        raise refused(path, f"{min(missing)} is missing")
