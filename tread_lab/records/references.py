"""Which file each name of a reference means in a lab: the first one that was measured against."""

from __future__ import annotations

from pathlib import Path

from tread_lab.records.durable import read_json, write_json
from tread_lab.specs.errors import UserError


def check_same_reference(folder: Path, name: str, digest: str, file: Path) -> None:
    """Refuse another file under a name that evaluations of this lab were made with.

    Args:
        folder: `references` of a lab; it gets a record of a name that is new.
        digest: SHA-256 of the file.

    Raises:
        UserError: the files differ; says which they are.
    """
    record = folder / f"{name}.json"
    known = read_json(record)
    if known is None:
        write_json(record, {"sha256": digest, "file": str(file)})
    elif known["sha256"] != digest:
        raise UserError(
            f"reference {name}: {file} (SHA-256 {digest[:12]}...) is another file than"
            f" {known['file']} ({known['sha256'][:12]}...), which evaluations of this lab compare"
            " with under this name; give it a name of its own by reference.name"
        )
