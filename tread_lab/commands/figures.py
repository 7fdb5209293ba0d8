"""The figures command: draw every figure that a sweep's records support."""

from __future__ import annotations

from tread_lab.analysis.figures.catalogue import write_figures
from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab


def run(*, root: str | None, name: str) -> int:
    """Draw the figures and print their paths; return the exit code."""
    lab = Lab.existing(root)
    for path in write_figures(lab, lab.known_sweep(name).name):
        print(path)
    return DONE
