"""The trials that a search has suggested, in order: an append-only appendix to a sweep's plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.lines import append_line, read_lines
from tread_lab.records.plan import StoredTrial
from tread_lab.specs.cell import Cell


@dataclass(frozen=True)
class Suggestion:
    """One cell that a search chose.

    Attributes:
        number: its place in the order of choosing, from 0.
        cell: its axis values.
        trials: its trials, baselines that only it needs included.
        notes: what the sampler wrote down for itself when it chose the cell.
    """

    number: int
    cell: Cell
    trials: tuple[StoredTrial, ...]
    notes: dict[str, Any]


def append(path: Path, suggestion: Suggestion) -> None:
    """Write a suggestion down before any of its runs starts."""
    trials = [trial.tree() for trial in suggestion.trials]
    append_line(path, {**vars(suggestion), "trials": trials})


def read(path: Path) -> list[Suggestion]:
    """Return the suggestions in order; a damaged line is passed over, its runs are still there."""
    suggestions = [
        Suggestion(
            tree["number"],
            tree["cell"],
            tuple(map(StoredTrial.read, tree["trials"])),
            tree.get("notes", {}),
        )
        for tree in read_lines(path)
        if {"number", "cell", "trials"} <= tree.keys()
    ]
    return sorted(suggestions, key=lambda suggestion: suggestion.number)
