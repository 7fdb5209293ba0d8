"""The sync command: make the MLflow store equal to the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.commands.exit_codes import DONE
from tread_lab.commands.mlflow_view import sync_now
from tread_lab.records.lab import Lab
from tread_lab.screen.console import answer
from tread_lab.specs.errors import UserError


@dataclass(frozen=True)
class Options:
    """The options of `tread-lab sync`; without names it takes all sweeps of the lab."""

    root: str | None
    names: Sequence[str]


def run(options: Options) -> int:
    """Bring the named sweeps up to date in MLflow; return the exit code."""
    lab = Lab.existing(options.root)
    names = [lab.known_sweep(name).name for name in options.names] or lab.sweeps()
    if not names:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in names:
        answer(str(sync_now(lab, name)))
    return DONE
