"""Caveats of a comparison: mixed code, data or weights, and cells that have left the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tread_lab.config.labels import AnySpec
from tread_lab.config.units import counted
from tread_lab.records.lab import Lab
from tread_lab.records.run_state import RunState
from tread_lab.records.sweep_folder import PlanOf

Digests = Mapping[str, Mapping[str, list[str]]]  # part -> digest, or words -> its runs, in order


def mixtures(lab: Lab, runs: Iterable[str]) -> list[str]:
    """Return a line for each kind of difference (code, data, weights) among compared runs."""
    lines = []
    for part, found in _differences(lab, runs).items():
        counts = (f"{_short(name)} in {counted(len(own), 'run')}" for name, own in found.items())
        lines.append(f"not one comparison: {part} differs: {', '.join(counts)}")
    return lines


def made_otherwise(lab: Lab, runs: Iterable[str]) -> list[str]:
    """Return one line on what differs among runs, on their commits and on uncommitted changes."""
    names = [*runs]
    commits = {
        str(attempt["code"])
        for run in names
        for attempt in lab.run(run).origin()
        if attempt.get("code")
    }
    texts = mixtures(lab, names)
    texts += [f"{len(commits)} commits: {', '.join(sorted(commits))}"] if len(commits) > 1 else []
    texts += ["code had uncommitted changes"] if any("-dirty" in name for name in commits) else []
    return ["; ".join(texts)] if texts else []


def mixed_runs(lab: Lab, runs: Iterable[str]) -> set[str]:
    """Return the runs with code, data or weights that differ from most runs in any attempt."""
    mixed = set[str]()
    for found in _differences(lab, runs).values():
        usual = max(found, key=lambda digest: len(found[digest]))
        mixed.update(run for digest, own in found.items() if digest != usual for run in own)
    return mixed


def _differences(lab: Lab, runs: Iterable[str]) -> Digests:
    """Return what differs among all attempts at runs and all evaluations of them.

    A run with several digests of a part is listed under each; an absent digest is no difference.
    """
    seen: dict[str, dict[str, list[str]]] = {}
    for folder in map(lab.run, runs):
        measured = [(place.read() or {}).get("made_with", {}) for place in folder.evaluations()]
        for facts in (*(attempt.fingerprint for attempt in folder.attempts()), *measured):
            for part, digest in facts.items():
                own = seen.setdefault(part, {}).setdefault(digest, [])
                own += [folder.name] if folder.name not in own else []
    return {part: found for part, found in sorted(seen.items()) if len(found) > 1}


def _short(digest: str) -> str:
    """Return the first digits of a digest; words are shown whole."""
    return digest[:8] if re.fullmatch("[0-9a-f]{12,}", digest) else digest


def left_cells(lab: Lab, plan: PlanOf[AnySpec]) -> list[str]:
    """Return the labels of started cells of earlier files that have no run in the plan.

    Comparisons count them like the cells of the plan.
    """
    seen, left = {trial.run for trial in plan.trials}, list[str]()
    for cells in reversed(lab.sweep(plan.name).history()):
        for label, runs in cells.items():
            if seen.isdisjoint(runs) and _started(lab, runs):
                left.append(label)
                seen |= {*runs}
    return left


def _started(lab: Lab, runs: list[str]) -> bool:
    return any(lab.run(run).state() is not RunState.PENDING for run in runs)


def left_note(labels: list[str]) -> list[str]:
    """Return a line about the cells that have left the file, if any."""
    return [f"left the file, still counted: {'; '.join(labels)}"] if labels else []
