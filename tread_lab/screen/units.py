"""Counts, durations and sizes in a few words."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

Word = TypeVar("Word", bound=str)


def counts_text(states: Counter[Word]) -> str:
    """`3 completed, 1 failed`, the most frequent first."""
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_text(count: float) -> str:
    """A size as people say it."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} PB"
