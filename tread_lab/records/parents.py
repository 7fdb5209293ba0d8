"""Parents by name: `init_from: {run: 3f2a}` becomes its whole spec, and a file gets its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tread_lab.records.lab import Lab
from tread_lab.specs.decode import encode
from tread_lab.specs.errors import UserError


def with_parents(tree: Any, lab: Lab) -> Any:
    """Return the tree with the spec of every parent that it names by (a prefix of) its signature,
    and with the digest of every file that a run starts from.

    Raises:
        UserError: the lab has no such run, or several; a file cannot be read.
    """
    if isinstance(tree, list | tuple):
        return type(tree)(with_parents(item, lab) for item in tree)
    if not isinstance(tree, Mapping):
        return tree
    written = {key: with_parents(value, lab) for key, value in tree.items()}
    start = written.get("init_from")
    if isinstance(start, str):
        start = {"run": start}
    if isinstance(start, dict) and isinstance(start.get("run"), str):
        written["init_from"] = {**start, "run": encode(lab.known_run(start["run"]).spec())}
    if isinstance(start, dict) and isinstance(start.get("file"), str):
        path = Path(start["file"]).expanduser().resolve()
        written["init_from"] = {**start, "file": str(path), "digest": digest_of(path)}
    return written


def digest_of(path: Path) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise UserError(f"init_from.file: cannot read {path}: {error.strerror}") from None
