"""Frozen networks of transformers, from a folder or the hub; the only door to transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tread_lab.specs.errors import UserError


def load_pretrained(kind: str, where: str | Path, field: str, **options: Any) -> Any:
    """Return what the class `kind` of transformers makes of a folder or, of a text, of a hub id.

    Args:
        field: of the run or evaluation that wants it, which an error names.

    Raises:
        UserError: it cannot be loaded.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    local = isinstance(where, Path)
    try:
        return getattr(transformers, kind).from_pretrained(where, local_files_only=local, **options)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{field}: {str(where)!r} cannot be loaded: {reason}") from None
