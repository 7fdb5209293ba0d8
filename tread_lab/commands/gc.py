"""The gc command: list the files that nothing in a lab needs any more, or remove them."""

from __future__ import annotations

from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab
from tread_lab.screen.gc import show_removable
from tread_lab.sweep.gc import SAMPLES, clear, find


def run(*, root: str | None, yes: bool, samples: bool, as_json: bool) -> int:
    """List what can be removed, and remove it where `yes` is set; return the exit code."""
    lab = Lab.existing(root)
    removable = find(lab, samples=True)
    chosen = [item for item in removable if samples or item.what != SAMPLES]
    freed = clear(lab, chosen) if yes else None
    kept_bytes = sum(item.bytes for item in removable) - sum(item.bytes for item in chosen)
    show_removable(chosen, freed, as_json=as_json, samples_kept=kept_bytes)
    return DONE
