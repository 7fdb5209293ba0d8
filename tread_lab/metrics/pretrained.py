"""Frozen networks of transformers, from a folder or the hub; the only door to transformers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tread_lab.records.checksums import fits
from tread_lab.records.durable import read_json, write_json
from tread_lab.specs.errors import UserError, first_line

_ENDS = 1 << 20  # bytes at both ends of a file of weights that go into its digest
_COPIES = 64  # of the same weights that a lab knows


def load_pretrained(kind: str, where: str | Path, field: str, **options: Any) -> Any:
    """Return what the class `kind` of transformers makes of a folder or, of a text, of a hub id.

    A network is in fp32 and holds the weights of its file, all of them: transformers by itself
    computes in the file's type, and draws at random what a file lacks.

    Args:
        field: of the run or evaluation that wants it, which an error names.

    Raises:
        UserError: it cannot be loaded, or weights are missing.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made, local = getattr(transformers, kind), isinstance(where, Path)
    if is_network := not kind.endswith("Tokenizer"):
        options["output_loading_info"] = True
    try:
        loaded = made.from_pretrained(where, local_files_only=local, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {first_line(error)}") from None
    if not is_network:
        return loaded
    network, found = loaded
    if missing := sorted(found["missing_keys"]):
        what = f"{missing[0]} is missing" + (f", and {len(missing) - 1} more" * (len(missing) > 1))
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {what}")
    return network.float()


def new_network(kind: str, **config: Any) -> Any:
    """Return a network of the class `kind` of transformers with random weights."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made = getattr(transformers, kind)
    return made(made.config_class(**config))


def new_tokenizer(kind: str, tokens: Sequence[str]) -> Any:
    """Return a tokenizer of the class `kind` that knows these tokens alone."""
    import transformers

    return getattr(transformers, kind)(vocab={x: k for k, x in enumerate(tokens)}, merges=[])


def weights_digest(folder: Path) -> str:
    """Return a digest of names, sizes and both ends of the files of weights in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_ENDS))
            file.seek(max(size - _ENDS, 0))
            digest.update(file.read(_ENDS))
    return digest.hexdigest()[:16]


def check_weights(caches: Path, name: str, folder: Path, field: str) -> None:
    """Refuse weights that differ, if only in their middle, from those that a lab has by this name.

    They are read whole once, and again where a file has another size, time or inode, as each copy
    of them has on the disk of a node.
    """
    facts = {path: path.stat() for path in sorted(folder.glob("*.safetensors"))}
    stamp = [[path.name, x.st_size, x.st_mtime_ns, x.st_ino] for path, x in facts.items()]
    record = caches / "weights" / f"{name.replace('/', '--')}.json"
    known = read_json(record)
    if not fits(known, {"sha256": str, "stamps": list}):
        known = {"stamps": []}
    if stamp in known["stamps"]:
        return
    digest = hashlib.sha256()
    for path in facts:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    if known.get("sha256", digest.hexdigest()) != digest.hexdigest():
        raise UserError(
            f"{field}: {folder} holds other weights than those that this lab has seen under the"
            " same name; put these back, or use another --root"
        )
    stamps = [*known["stamps"], stamp][-_COPIES:]
    write_json(record, {"sha256": digest.hexdigest(), "stamps": stamps})
