"""Tags that a sync writes about itself: what it sent of a run, and which texts are its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tread_lab.tracking.artifacts import File
from tread_lab.tracking.projection import file_mark

NAME = "name"  # of the run, beside the names of tags
NOTE = "mlflow.note.content"
FACTS = ("cell", "role", "state", "signature", "code", "device")  # tags that the sync alone writes
SHARED = (NAME, NOTE, "problem", "attempts")  # places where a person may have written too


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
        place: file_mark(source) if isinstance(source, Path) else _digest(source)
        for place, source in files.items()
    }
    return _digest(json.dumps(facts, sort_keys=True))


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
        return Authored({place: _digest(text) for place, text in texts.items()})

    def is_ours(self, place: str, text: str, wanted: str | None) -> bool:
        """Return whether the sync wrote `text`, which stands in `place` now.

        Args:
            wanted: what the sync would write there; `None` if it would write none.
        """
        if text == wanted:
            return True
        if not self.known:  # earlier versions began every note in bold and rewrote other tags
            return text.startswith("**") if place == NOTE else place != NAME
        return self.digests.get(place) == _digest(text)


def _digest(content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]
