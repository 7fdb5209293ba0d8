"""A run as the MLflow store has it: what a sync sent, and what a person wrote on it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tread_lab.records.checksums import digest
from tread_lab.tracking.artifacts import File
from tread_lab.tracking.mlflow_client import Run
from tread_lab.tracking.projection import View, file_mark

NAME = "name"  # of the run, beside the names of tags
NOTE = "mlflow.note.content"
PASSING = ("compared", "disturbed")  # tags that the sync alone writes, and takes back
FACTS = ("cell", "role", "state", "signature", "code", "device", *PASSING)
SHARED = (NAME, NOTE, "problem", "attempts", "tags")  # places where a person may have written too


@dataclass(frozen=True)
class Sent:
    """A run's fingerprint and how far it was sent.

    Attributes:
        stamp: fingerprint of everything that is shown.
        log: sequence number of the last value of the log; -1 before there is one.
        born: when that log begins, in milliseconds.
        files: fingerprint of the artifacts.
    """

    stamp: str = ""
    log: int = -1
    born: int = 0
    files: str = ""

    def __str__(self) -> str:
        return f"stamp={self.stamp} log={self.log} born={self.born} files={self.files}"

    @staticmethod
    def parse(text: str) -> Sent:
        """Read the tag; nothing was sent if it is empty or damaged."""
        facts = dict(part.partition("=")[::2] for part in text.split())
        try:
            return Sent(facts["stamp"], int(facts["log"]), int(facts["born"]), facts["files"])
        except (KeyError, ValueError):
            return Sent()


def files_mark(files: Mapping[str, File]) -> str:
    """Return the fingerprint of artifacts: files by size and time, made ones by content."""
    facts: dict[str, Any] = {
        place: file_mark(source) if isinstance(source, Path) else digest(source)
        for place, source in files.items()
    }
    return digest(json.dumps(facts, sort_keys=True))


@dataclass(frozen=True)
class Authored:
    """The digest of what the sync wrote last in every place of `SHARED`.

    Attributes:
        known: whether a sync has left digests on the run; versions before them left none.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    known: bool = True

    def __str__(self) -> str:
        return " ".join(f"{place}={digest}" for place, digest in self.digests.items())

    @staticmethod
    def parse(text: str | None) -> Authored:
        """Read the tag; `None` if the run has none."""
        pairs = (part.partition("=")[::2] for part in (text or "").split())
        return Authored(dict(pairs), known=text is not None)

    @staticmethod
    def of(texts: Mapping[str, str]) -> Authored:
        """Return the digests of what is about to be written, by place."""
        return Authored({place: digest(text) for place, text in texts.items()})

    def is_ours(self, place: str, text: str, wanted: str | None) -> bool:
        """Return whether the sync wrote `text`, which stands in `place` now.

        Args:
            wanted: what the sync would write there; `None` if it would write none.
        """
        if text == wanted:
            return True
        if not self.known:  # earlier versions began every note in bold and rewrote other tags
            return text.startswith("**") if place == NOTE else place != NAME
        return self.digests.get(place) == digest(text)


_OWN_TAGS = ("sweep", "lab", "trial", "sent", "authored")
SWEEP, LAB, TRIAL, SENT, AUTHORED = (f"tread_lab.{name}" for name in _OWN_TAGS)
PARENT_RUN = "mlflow.parentRunId"


def is_up_to_date(stored: Run, parent_id: str, stamp: str) -> bool:
    """Return whether the run was sent with this stamp and lies under this parent."""
    tags = stored.data.tags
    return tags.get(PARENT_RUN) == parent_id and Sent.parse(tags.get(SENT, "")).stamp == stamp


def name_of(stored: Run, wanted: str) -> str:
    """Return the name that a run is to have: the one a person gave it, else `wanted`."""
    authored, name = Authored.parse(stored.data.tags.get(AUTHORED)), str(stored.info.run_name)
    return wanted if authored.is_ours(NAME, name, wanted) else name


def own_tags(stored: Run, wanted: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the tags of a run without what a person wrote where the sync writes too."""
    tags, wanted = stored.data.tags, wanted or {}
    authored = Authored.parse(tags.get(AUTHORED))
    ours = {k for k in tags if k not in SHARED or authored.is_ours(k, tags[k], wanted.get(k))}
    return {k: tags[k] for k in ours}


def typed_tags(stored: Run, view: View) -> dict[str, str]:
    """Return what a person wrote on a run that is made anew, with the digests that prove it."""
    tags, own = stored.data.tags, own_tags(stored, view.tags)
    made = {*FACTS, *view.tags} - set(SHARED)
    ours = {k for k in own if k in {*made, *SHARED} or k.startswith(("mlflow.", "tread_lab."))}
    typed = {name: text for name, text in tags.items() if name not in ours}
    return typed | {AUTHORED: tags.get(AUTHORED, "")}


def contradicts(stored: Run, view: View) -> bool:
    """Return whether the store says something that cannot be taken back; the run is made anew."""
    sent = Sent.parse(stored.data.tags.get(SENT, ""))
    if any(stored.data.params.get(name, value) != value for name, value in view.params.items()):
        return True
    if sent.log >= 0 and (sent.born != view.born or sent.log > max(view.logged, default=-1)):
        return True  # the record was replaced by another one
    curves, numbers = {number.key for number in view.logged.values()}, stored.data.metrics
    if numbers.keys() - curves - view.measured.keys() - {number.key for number in view.during}:
        return True  # a number that the record no longer has, or that had another name
    return any(
        key not in curves and not _same(numbers.get(key, number.value), number.value)
        for key, number in view.measured.items()
    )


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
