"""The export command: write the weights of a run with a model card into a folder."""

from __future__ import annotations

from pathlib import Path

from tread_lab.commands.exit_codes import DONE
from tread_lab.engine.export import export
from tread_lab.records.lab import Lab
from tread_lab.screen.console import answer
from tread_lab.specs.errors import UserError
from tread_lab.specs.units import amount


def run(*, root: str | None, name: str, out: str, step: int | None) -> int:
    """Export the EMA weights of a run, its last or those of a kept step; return the exit code."""
    lab = Lab.existing(root)
    if name in lab.sweeps():
        raise UserError(f"{name} is a sweep; `tread-lab status {name}` lists its runs")
    for file, size in export(lab.known_run(name), Path(out), step=step).items():
        answer(f"{Path(out) / file}: {amount(size)}")
    return DONE
