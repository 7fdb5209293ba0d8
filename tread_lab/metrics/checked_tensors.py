"""Named tensors, part by part, and their files with a checksum, which are read whole or not."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tread_lab.records.durable import replacing

_CHECKSUM = "sha256"


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """Write tensors on the CPU, and facts beside them, whole or not at all.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, {**(facts or {}), _CHECKSUM: _digest(whole)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Return tensors and facts, `None` if the file is absent or damaged."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = dict(file.metadata() or {})
        if facts.pop(_CHECKSUM, None) == _digest(tensors):
            return tensors, facts
    return None


def nested(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the tensors of all parts, each under `part/name`."""
    return {f"{part}/{name}": x for part, named in parts.items() for name, x in named.items()}


def below(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Return the tensors under `part/`, by their names without it."""
    start = f"{part}/"
    return {name.removeprefix(start): x for name, x in tensors.items() if name.startswith(start)}


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors: safetensors notices a file cut short, but no flipped bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
