"""The gc command: list what nothing in a lab needs any more, or remove it."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab
from tread_lab.screen.gc import show_removable
from tread_lab.sweep.gc import SAMPLES, clear, find


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab gc`."""

    root: str | None
    yes: bool
    samples: bool
    json: bool


def run(options: Options) -> int:
    """List what can be removed, and with `--yes` remove it; return the exit code."""
    lab = Lab.existing(options.root)
    removable = find(lab, samples=True)
    chosen = [item for item in removable if options.samples or item.what != SAMPLES]
    freed = clear(lab, chosen) if options.yes else None
    kept_bytes = sum(item.bytes for item in removable) - sum(item.bytes for item in chosen)
    show_removable(chosen, freed, as_json=options.json, samples_kept=kept_bytes)
    return DONE
