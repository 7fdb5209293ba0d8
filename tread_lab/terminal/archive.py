"""What exporting or importing a sweep has done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tread_lab.records import sweep_archive
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_archive import Transfer
from tread_lab.specs.units import amount, counted
from tread_lab.terminal.console import answer

# What became of runs -> what is said of so many.
RUNS = {
    sweep_archive.PACKED: "{} with records",
    sweep_archive.PENDING: "{} not begun",
    sweep_archive.NEW: "{} new",
    sweep_archive.HERE: "{} here already",
    sweep_archive.DIFFERENT: "{} here with other records",
}


def show_exported(transfer: Transfer, out: Path) -> None:
    """Print what an archive holds, and its size."""
    weights = "with" if transfer.weights else "without"
    answer(f"{out}: sweep {transfer.sweep}, {', '.join(_runs(transfer))}, {weights} weights")
    files, size = counted(transfer.files, "file"), amount(out.stat().st_size)
    answer(f"{files} of {amount(transfer.bytes)} in {size}")


def show_imported(transfer: Transfer, lab: Lab) -> None:
    """Print what became of the runs of an archive, and how they are shown."""
    name = transfer.sweep
    answer(f"{name}: {', '.join(_runs(transfer)) or 'no run has begun'}; in {lab.root}")
    answer(f"{counted(transfer.files, 'file')} of {amount(transfer.bytes)}")
    for line in transfer.lines:
        answer(line)
    if transfer.runs and not transfer.weights:
        answer("the archive has no weights: its finished runs can be shown, and not measured anew")
    answer(f"`tread-lab figures {name}` draws it, `tread-lab sync {name}` adds it to MLflow")


def _runs(transfer: Transfer) -> Iterator[str]:
    """Yield `3 runs new` for each thing that became of runs."""
    for key, text in RUNS.items():
        if transfer.runs[key]:
            yield text.format(counted(transfer.runs[key], "run"))
