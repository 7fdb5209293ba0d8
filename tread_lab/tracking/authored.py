"""Digests of the notes, names and tags that the sync wrote: what a person typed in MLflow stays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

NAME = "name"  # of the run, beside the names of tags
NOTE = "mlflow.note.content"
FACTS = ("cell", "role", "state", "signature", "code", "device")  # tags that the sync alone writes
SHARED = (NAME, NOTE, "problem", "attempts")  # places where a person may have written too


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
        """From the tag; `None` where the run has none."""
        pairs = (part.partition("=")[::2] for part in (text or "").split())
        return Authored(dict(pairs), known=text is not None)

    @staticmethod
    def of(texts: Mapping[str, str]) -> Authored:
        """Of what is about to be written, by place."""
        return Authored({place: _digest(text) for place, text in texts.items()})

    def is_ours(self, place: str, text: str, wanted: str | None) -> bool:
        """Return whether the sync wrote `text`, which stands in `place` now.

        Args:
            wanted: what the sync would write there; `None` for nothing.
        """
        if text == wanted:
            return True
        if not self.known:  # earlier versions began every note in bold and rewrote other tags
            return text.startswith("**") if place == NOTE else place != NAME
        return self.digests.get(place) == _digest(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
