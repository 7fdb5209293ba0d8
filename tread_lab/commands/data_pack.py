"""The data pack command: any latents that a run can read, packed into arrays."""

from __future__ import annotations

from pathlib import Path

from tread_lab.commands.exit_codes import DONE
from tread_lab.data.manifest import read_manifest
from tread_lab.prepare.pack import pack, source_of
from tread_lab.screen.data import show_packed, show_steps


def run(*, path: Path, out: Path, source: str | None, batch: int, as_json: bool) -> int:
    """Pack what is still to come; return the exit code."""
    show_steps(pack(source or source_of(path), path, out, batch=batch), "samples")
    manifest = read_manifest(out)
    assert manifest is not None
    show_packed(out, manifest, as_json=as_json)
    return DONE
