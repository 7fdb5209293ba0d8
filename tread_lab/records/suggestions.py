"""The trials that a search has asked for, in order: an append-only appendix to a sweep's plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.lines import append_line, read_lines


@dataclass(frozen=True)
class Asked:
    """One cell that a search chose.

    Attributes:
        number: its place in the order of asking, from 0.
        cell: its axis values.
        trials: its runs as `plan.json` writes trials, baselines that only it needs included.
        notes: what the sampler wrote down for itself when it chose the cell.
    """

    number: int
    cell: dict[str, Any]
    trials: tuple[dict[str, Any], ...]
    notes: dict[str, Any]


def append(path: Path, asked: Asked) -> None:
    """Write it down before anything of it starts."""
    append_line(path, {**vars(asked), "trials": list(asked.trials)})


def read(path: Path) -> list[Asked]:
    """All that were asked, in order; a damaged line is passed over, its runs are still there."""
    found = [
        Asked(tree["number"], tree["cell"], tuple(tree["trials"]), tree.get("notes", {}))
        for tree in read_lines(path)
        if {"number", "cell", "trials"} <= tree.keys()
    ]
    return sorted(found, key=lambda asked: asked.number)


def with_asked(plan: dict[str, Any], asked: Sequence[Asked]) -> dict[str, Any]:
    """The tree of a plan with the trials that were asked, each run once."""
    known = {trial["run"] for trial in plan["trials"]}
    trials = list(plan["trials"])
    for entry in asked:
        for trial in entry.trials:
            if trial["run"] not in known:
                known.add(trial["run"])
                trials.append(trial)
    return {**plan, "trials": trials}
