"""The figures command: draw every figure that a sweep's records support."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.analysis.figures.catalogue import write_figures
from tread_lab.commands.exit_codes import DONE
from tread_lab.records.lab import Lab


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab figures`."""

    root: str | None
    name: str


def run(options: Options) -> int:
    """Draw the figures and print their paths; return the exit code."""
    lab = Lab.existing(options.root)
    folder = lab.known_sweep(options.name)
    for path in write_figures(lab, folder.name):
        print(path)
    return DONE
