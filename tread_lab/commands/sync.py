"""The sync command: make the MLflow store equal to the records."""

from __future__ import annotations

from collections.abc import Sequence

from tread_lab.commands.mlflow_view import sync_now
from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.screen.console import answer, shown_problems
from tread_lab.specs.errors import UserError


def run(*, root: str | None, names: Sequence[str]) -> int:
    """Bring the named sweeps, by default all, up to date in MLflow; return the exit code."""
    lab = Lab.existing(root)
    problems: list[UserError] = []
    named = [lab.known_sweep(name).name for name in names]
    sweeps = named or [*lab.of_sweeps(SweepFolder.plan, problems)]
    if not sweeps and not problems:
        raise UserError(f"no sweep in {lab.root}; `tread-lab sweep` makes one")
    for name in sweeps:
        answer(str(sync_now(lab, name)))
    return shown_problems(problems)
