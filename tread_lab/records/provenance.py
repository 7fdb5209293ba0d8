"""Provenance: which code, data and weights runs were made and measured with, and what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.units import counted


@dataclass(frozen=True)
class ProvenanceDifference:
    """A part of the provenance whose digest differs between runs.

    Attributes:
        what: `code`, `data ...`, `weights ...` or `decoder of ...`.
        runs: digest, or what stands for one in words -> the runs it was seen in, some at several.
    """

    what: str
    runs: Mapping[str, tuple[str, ...]]

    @property
    def within(self) -> list[str]:
        """The runs between whose attempts it changed."""
        seen = Counter(run for runs in self.runs.values() for run in runs)
        return sorted(run for run, digests in seen.items() if digests > 1)

    def __str__(self) -> str:
        parts = []
        for digest, runs in self.runs.items():
            short = digest[:8] if re.fullmatch("[0-9a-f]{12,}", digest) else digest  # or words
            parts.append(f"{short} in {counted(len(runs), 'run')}")
        changed = f"; it changed within {len(self.within)} of them" if self.within else ""
        return f"{self.what} differs: {', '.join(parts)}{changed}"


def provenances_of(lab: Lab, runs: Iterable[str]) -> dict[str, list[Mapping[str, str]]]:
    """Return the provenance of every attempt at these runs, and of every evaluation of them."""
    folders = map(lab.run, runs)
    return {f.name: [*(a.fingerprint for a in f.attempts()), *measured(f)] for f in folders}


def mixtures(lab: Lab, runs: Iterable[str]) -> list[str]:
    """Return a line for each thing that differs among runs that stand in one table."""
    differences = provenance_differences(provenances_of(lab, runs))
    return [f"not one comparison: {difference}" for difference in differences]


def mixed_runs(lab: Lab, runs: Iterable[str]) -> set[str]:
    """Return the runs whose code, data or weights, at some attempt, are not those of most runs."""
    mixed = set[str]()
    for difference in provenance_differences(provenances_of(lab, runs)):
        usual = max(difference.runs.values(), key=len)
        mixed.update(*(own for own in difference.runs.values() if own is not usual))
    return mixed


def measured(folder: RunFolder) -> Iterator[Mapping[str, str]]:
    """Yield what the finished evaluations of a run were made with."""
    for tree in (place.read() or {} for place in folder.evaluations()):
        yield tree.get("made_with", {})


def provenance_differences(
    made: Mapping[str, Iterable[Mapping[str, str]]],
) -> list[ProvenanceDifference]:
    """Return what differs among all attempts at the runs; an absent digest is no difference."""
    seen: dict[str, dict[str, dict[str, None]]] = {}
    for run, attempts in made.items():
        for facts in attempts:
            for what, digest in facts.items():
                seen.setdefault(what, {}).setdefault(digest, {})[run] = None
    return [
        ProvenanceDifference(what, {digest: tuple(runs) for digest, runs in digests.items()})
        for what, digests in sorted(seen.items())
        if len(digests) > 1
    ]
