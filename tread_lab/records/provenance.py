"""Provenance: which code, data and weights runs were made and measured with, and what differs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.units import counted

HELDOUT = "held-out data "
PROBED = "labels in probes"  # of runs of which no step saw any


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


def without_scale(what: str) -> str:
    """Return what earlier versions called data with a digest, and what decodes them."""
    return re.sub(r" x \S+$", "", what)


def provenances_of(lab: Lab, runs: Iterable[str]) -> dict[str, list[Mapping[str, str]]]:
    """Return the provenance of every attempt at these runs, and of every evaluation of them."""
    folders = map(lab.run, runs)
    return {f.name: [*(a.fingerprint for a in f.attempts.read()), *measured(f)] for f in folders}


def mixtures(lab: Lab, runs: Iterable[str]) -> list[str]:
    """Return a line for each thing that differs among runs that stand in one table."""
    differences = provenance_differences(provenances_of(lab, runs))
    return [f"not one comparison: {difference}" for difference in differences]


def measured(folder: RunFolder) -> Iterator[Mapping[str, str]]:
    """Yield what the finished evaluations of a run were made with; older ones have not said it.

    Earlier versions gave labels to a network of which no step had seen any.
    """
    for tree in (place.read() or {} for place in folder.evaluations()):
        made_with, kind = tree.get("made_with", {}), tree.get("spec", {}).get("kind")
        probed = kind in ("heldout_loss", "layer_similarity") and PROBED not in made_with
        told = {PROBED: "never trained"} if probed and _saw_no_label(folder) else {}
        yield {**made_with, **told}


def _saw_no_label(folder: RunFolder) -> bool:
    """Return whether no step of a run saw a label; few specs are decoded for it."""
    try:
        text = (folder.path / "spec.yaml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    spec = folder.readable_spec() if re.search(r"label_drop: 1(\.0)?\b", text) else None
    return spec is not None and not spec.may_know("class")


def provenance_differences(
    made: Mapping[str, Iterable[Mapping[str, str]]],
) -> list[ProvenanceDifference]:
    """Return what differs among all attempts at the runs; records without digests say nothing."""
    seen: dict[str, dict[str, dict[str, None]]] = {}
    for run, attempts in _as_now(made).items():
        for facts in attempts:
            for what, digest in facts.items():
                seen.setdefault(what, {}).setdefault(digest, {})[run] = None
    return [
        ProvenanceDifference(what, {digest: tuple(runs) for digest, runs in digests.items()})
        for what, digests in sorted(seen.items())
        if len(digests) > 1
    ]


def _as_now(
    made: Mapping[str, Iterable[Mapping[str, str]]],
) -> dict[str, list[Mapping[str, str]]]:
    """Return provenances, those of earlier versions with the scale in the names of their data, as
    far as others have it: the digests of held-out data tell which it is."""
    listed = {run: [*attempts] for run, attempts in made.items()}
    facts = {fact for attempts in listed.values() for one in attempts for fact in one.items()}
    heldout = ((without_scale(what), what, d) for what, d in facts if what.startswith(HELDOUT))
    scaled = {(old, d): what for old, what, d in heldout if old != what}

    def renamed(one: Mapping[str, str]) -> Mapping[str, str]:
        for old in scaled.keys() & one.items():
            before, after = (what.removeprefix(HELDOUT) for what in (old[0], scaled[old]))
            one = {
                what.removesuffix(before) + after if what.endswith(f" {before}") else what: digest
                for what, digest in one.items()
            }
        return one

    return (
        {run: [*map(renamed, attempts)] for run, attempts in listed.items()} if scaled else listed
    )
