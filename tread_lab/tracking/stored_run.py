"""A run as the MLflow store has it: what a sync sent, and the tags of its users."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.records.checksums import digest
from tread_lab.tracking.artifacts import File
from tread_lab.tracking.mlflow_client import Run
from tread_lab.tracking.projection import View, file_mark

NOTE = "mlflow.note.content"
PASSING = ("compared", "disturbed", "problem", "attempts", "reason")  # tags that a sync takes back
_PREFIXES = ("mlflow.", "tread_lab.")  # of tags that MLflow and the sync write
OURS = ("cell", "role", "state", "signature", "code", "device", *PASSING)


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


_OWN_TAGS = ("sweep", "lab", "trial", "sent")
SWEEP, LAB, TRIAL, SENT = (f"tread_lab.{name}" for name in _OWN_TAGS)
PARENT_RUN = "mlflow.parentRunId"


def is_up_to_date(stored: Run, parent_id: str, stamp: str) -> bool:
    """Return whether the run was sent with this stamp and lies under this parent."""
    tags = stored.data.tags
    return tags.get(PARENT_RUN) == parent_id and Sent.parse(tags.get(SENT, "")).stamp == stamp


def users_tags(stored: Run) -> dict[str, str]:
    """Return the note and the tags of a user, for a run that is made anew."""
    tags = stored.data.tags.items()
    own = {k: text for k, text in tags if k not in OURS and not k.startswith(_PREFIXES)}
    return own | {k: text for k, text in tags if k == NOTE}


def contradicts(stored: Run, view: View) -> bool:
    """Return whether the store says something that cannot be taken back; the run is made anew."""
    sent = Sent.parse(stored.data.tags.get(SENT, ""))
    if any(stored.data.params.get(name, value) != value for name, value in view.params.items()):
        return True
    if sent.log >= 0 and (sent.born != view.born or sent.log > max(view.logged, default=-1)):
        return True  # the record was replaced by another one
    curves, numbers = {number.key for number in view.logged.values()}, stored.data.metrics
    if numbers.keys() - curves - view.measured.keys() - {number.key for number in view.during}:
        return True  # a number that the record no longer has
    return any(
        key not in curves and not _same(numbers.get(key, number.value), number.value)
        for key, number in view.measured.items()
    )


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))
