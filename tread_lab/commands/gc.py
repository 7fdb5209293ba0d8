"""The gc command: list the files that nothing in a lab needs any more, or remove them."""

from __future__ import annotations

from tread_lab.records.lab import Lab
from tread_lab.screen.console import shown_problems
from tread_lab.screen.gc import show_removable
from tread_lab.specs.errors import UserError
from tread_lab.sweep.gc import FEATURES, SAMPLES, clear, find


def run(*, root: str | None, yes: bool, samples: bool, features: bool, as_json: bool) -> int:
    """List what can be removed, and remove it where `yes` is set; return the exit code."""
    lab = Lab.existing(root)
    problems: list[UserError] = []
    removable = find(lab, samples=True, features=True, problems=problems)
    asked = {SAMPLES: samples, FEATURES: features}
    chosen = [item for item in removable if asked.get(item.what, True)]
    freed = clear(lab, chosen) if yes else None
    kept = {
        what: sum(item.bytes for item in removable if item.what == what)
        for what, wanted in asked.items()
        if not wanted
    }
    show_removable(chosen, freed, as_json=as_json, kept=kept)
    return shown_problems(problems)
