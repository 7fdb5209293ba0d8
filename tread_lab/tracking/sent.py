"""What was already sent of one run, kept as a tag on that run in the store itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tread_lab.tracking.artifacts import File
from tread_lab.tracking.projection import file_mark


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
        """From the tag; nothing was sent where it is absent or not ours."""
        facts = dict(part.partition("=")[::2] for part in text.split())
        try:
            return Sent(facts["stamp"], int(facts["log"]), int(facts["born"]), facts["files"])
        except (KeyError, ValueError):
            return Sent()


def files_mark(files: Mapping[str, File]) -> str:
    """The fingerprint of artifacts: files by size and time, made ones by content."""
    facts: dict[str, Any] = {
        place: file_mark(source) if isinstance(source, Path) else _digest(source)
        for place, source in files.items()
    }
    return _digest(json.dumps(facts, sort_keys=True))


def _digest(content: str | bytes) -> str:
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:16]
