"""Files of named tensors with a checksum, which are read whole or not at all."""

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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors on the CPU, whole or not at all.

    Raises:
        UserError: the folder cannot be written or the disk is full.
    """
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(whole, temporary, {_CHECKSUM: _digest(whole)})


def read_tensors(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors, `None` if the file is absent or damaged."""
    with contextlib.suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if (file.metadata() or {}).get(_CHECKSUM) == _digest(tensors):
            return tensors
    return None


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors: safetensors notices a file cut short, but no flipped bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()
