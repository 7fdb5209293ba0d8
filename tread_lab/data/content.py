"""What a data set holds, as a digest: equal content under any path is equal data."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tread_lab.config.data import DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.units import amount
from tread_lab.data.folder import IMAGES, INDEX, LATENTS, images_beside, labelled_files
from tread_lab.data.latents import packed_files, read_manifest
from tread_lab.data.shards import tars_of
from tread_lab.data.source import both_parts
from tread_lab.data.statistics import statistics_file
from tread_lab.records.durable import read_json, write_json

FOLDER = "data"  # of a lab's cache: the digests of sets that had to be read
_SAID = 2**28  # bytes from which on the reading is said

# A file that decides what the data are, with its name, or none where its place alone counts.
ContentFile = tuple[str, Path]


def content_digest(
    data: DataSpec, cache: Path | None = None, say: Callable[[str], None] = lambda line: None
) -> str | None:
    """Return 16 hexadecimal digits of what a data set holds, whatever its path; `None` for the
    embedded one, which belongs to the code.

    They cover the training and the held-out part, labels, captions and, where the spec normalises
    by them, statistics. Files that a manifest names are not read while they have the size and the
    time that it says; others are read once, and again when a size, a time or an inode has changed:
    a link or a name may lead to other files of equal size and time.

    Args:
        cache: folder of a lab that keeps the digests of sets that had to be read.
        say: hears of the reading of much data.

    Raises:
        UserError: the data cannot be read.
    """
    if data.is_embedded:
        return None
    if data.source not in FILES:  # of another package: by what it says of its two parts
        return hashed(samples.fingerprint for samples in both_parts(data))
    if data.path is None:
        raise UserError("data.path: give the folder or file of the data")
    path = Path(data.path).expanduser().absolute()
    try:
        files = [*FILES[data.source](data, path)]
        if not files:
            raise UserError(f"data.path: there are no data in {path}")
        if data.normalised:
            files.append(("statistics", statistics_file(str(path))))
        return _digest(path, files, cache, say)
    except OSError as error:
        raise UserError(f"data.path: {error.filename or path}: {error.strerror}") from None


def check_content(data: DataSpec, cache: Path | None = None) -> None:
    """Refuse data that are not those that the spec was planned with."""
    if data.digest is None:
        return
    found = content_digest(data, cache)
    if found != data.digest:
        raise UserError(
            f"data: {data.path} holds other content ({found}) than the run was planned with"
            f" ({data.digest}); put the data back, or plan again: other data are another run"
        )


def hashed(lines: Iterable[str]) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _packed(data: DataSpec, path: Path) -> Iterator[ContentFile]:
    files = [path] if path.suffix == ".npz" else packed_files(path)
    return (("npz" if file == path else file.name, file) for file in files)


def _labelled(subfolder: str) -> Callable[[DataSpec, Path], Iterator[ContentFile]]:
    """Return what lists a dataset.json and the files that it names, and images beside latents."""

    def files(data: DataSpec, path: Path) -> Iterator[ContentFile]:
        own = labelled_files(data, subfolder)
        images = images_beside(own) if subfolder == LATENTS else None
        for labelled in filter(None, (own, images)):
            yield INDEX, labelled.folder / INDEX
            yield from (("", labelled.folder / name) for name in labelled.names)

    return files


def _unnamed(files: Iterable[Path]) -> Iterator[ContentFile]:
    return (("", file) for file in files)


# The files that decide what a set of each source is, in their order.
FILES: Mapping[str, Callable[[DataSpec, Path], Iterator[ContentFile]]] = {
    "latents": _packed,
    "shards": lambda data, path: _unnamed(tars_of(path)),
    "folder": _labelled(LATENTS),
    "images": _labelled(IMAGES),
    "safetensors": lambda data, path: _unnamed(sorted(path.glob("*.safetensors"))),
}


def _digest(
    path: Path, files: list[ContentFile], cache: Path | None, say: Callable[[str], None]
) -> str:
    """Return the digest of files: from a manifest beside them, from the cache, or by reading."""
    facts = [file.stat() for _, file in files]
    stamp = hashed(
        f"{name} {file} {fact.st_size} {fact.st_mtime_ns} {fact.st_ino}"
        for (name, file), fact in zip(files, facts)
    )
    kept = None if cache is None else cache / FOLDER / f"{hashed([str(path)])}.json"
    known = read_json(kept) if kept is not None else None
    if isinstance(known, dict) and known.get("stamp") == stamp:
        return str(known["digest"])
    by_path, sizes = _of_manifest(path), {f: fact.st_size for (_, f), fact in zip(files, facts)}
    to_read = [file for file in sizes if file not in by_path]
    if (size := sum(sizes[file] for file in to_read)) >= _SAID:
        say(f"{path}: reading {amount(size)} once, to know what the data are")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        by_path |= zip(to_read, pool.map(_sha256, to_read), strict=True)
    digest = hashed(f"{name} {by_path[file]}" for name, file in files)
    if to_read and kept is not None:
        with contextlib.suppress(UserError):  # a lab that cannot be written to reads again
            write_json(kept, {"path": str(path), "stamp": stamp, "digest": digest})
    return digest


def _of_manifest(folder: Path) -> dict[Path, str]:
    """Return the SHA-256 of files that have the size and the time that their manifest says."""
    try:
        manifest: Any = read_manifest(folder) or {}
    except UserError:
        return {}
    known = {}
    for name, stated in manifest.get("files", {}).items():
        with contextlib.suppress(OSError):
            fact = (folder / name).stat()
            if (fact.st_size, fact.st_mtime_ns) == (stated["bytes"], stated.get("mtime_ns")):
                known[folder / name] = stated["sha256"]
    return known


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
