"""The runs of a stored plan and their states, from its tree alone: ten thousand decode nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tread_lab.records.lab import Lab, SweepFolder
from tread_lab.records.status import RunState
from tread_lab.records.stopped_early import Stopped, state_in_sweep
from tread_lab.specs.errors import UserError
from tread_lab.specs.signature import signature

FORMAT = 1  # of plan.json

Tree = Mapping[str, Any]


def stored_tree(folder: SweepFolder) -> dict[str, Any]:
    """The tree of a plan that was stored, with the trials a search has asked for.

    Raises:
        UserError: there is none, or one of another version.
    """
    tree = folder.read_plan()
    if tree is None or tree.get("format") != FORMAT:
        raise UserError(f"{folder.plan_path} is not a plan of this version")
    return tree


def planned_runs(folder: SweepFolder) -> dict[str, Tree]:
    """The plain spec of every distinct run by name, in order, those it starts from first."""
    found: dict[str, Tree] = {}
    for trial in stored_tree(folder)["trials"]:
        for name, spec in _parents(trial["spec"]):
            found.setdefault(name, spec)
        found.setdefault(trial["run"], trial["spec"])
    return found


def planned_evaluations(tree: Tree) -> list[str]:
    """Signatures of the evaluations that a plan's tree asks for, in its order."""
    return [signature(spec) for spec in tree.get("evaluate") or ()]


def count_states(
    lab: Lab, runs: Mapping[str, Tree], stopped: Mapping[str, Stopped] | None = None
) -> Counter[RunState]:
    """How many runs are in which state; only those that have a folder are looked at.

    Args:
        stopped: runs that the sweep has stopped early.
    """
    try:
        begun = set(os.listdir(lab.root / "runs"))  # noqa: PTH208 (the names are enough)
    except FileNotFoundError:
        begun = set()
    states = (lab.run(run).state() if run in begun else RunState.PENDING for run in runs)
    before = stopped or {}
    return Counter(state_in_sweep(state, run, before) for run, state in zip(runs, states))


def _parents(spec: Tree) -> Iterator[tuple[str, Tree]]:
    """The runs that a run descends from, the eldest first."""
    start = spec.get("init_from")
    if start:
        yield from _parents(start["run"])
        yield signature(start["run"]), start["run"]
