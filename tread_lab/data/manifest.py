"""The manifest of packed arrays: what was stored, from what, with the checksum of every file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tread_lab.records.durable import read_json, write_json
from tread_lab.specs.errors import UserError

MANIFEST = "manifest.json"
FORMAT = "tread-lab packed arrays 1"


def read_manifest(folder: Path) -> dict[str, object] | None:
    """Return the manifest of a folder; `None` without one.

    Raises:
        UserError: it is damaged, or of another format.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    tree = read_json(path)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise UserError(f"{path} is damaged or no manifest of {FORMAT!r}; make the data again")
    return tree


def write_manifest(folder: Path, facts: Mapping[str, object], names: Iterable[str]) -> None:
    """Write the manifest with size and SHA-256 of the files `names`; equal data, equal bytes."""
    files = {name: file_facts(folder / name) for name in sorted(names)}
    write_json(folder / MANIFEST, {"format": FORMAT, **facts, "files": files})


def file_facts(path: Path) -> dict[str, object]:
    """Return size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}
