"""Counts, durations and amounts in words: `3 completed, 1 failed`, `36.4 days`, `10.8 GB`."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

Word = TypeVar("Word", bound=str)

_HOUR, _DAY, _YEAR = 3600.0, 86400.0, 365.25 * 86400.0
_DURATIONS = (  # below which seconds, how many seconds the unit has, how it is written
    (90.0, 1.0, "{:.0f} s"),
    (90 * 60.0, 60.0, "{:.0f} min"),
    (4 * _DAY, _HOUR, "{:.1f} h"),
    (2 * _YEAR, _DAY, "{:.1f} days"),
)


def counted(n: int, noun: str) -> str:
    """Return `1 run`, `2 runs`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def counts_text(states: Counter[Word]) -> str:
    """Return `3 completed, 1 failed`, the most frequent first."""
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def duration(seconds: float) -> str:
    """Return seconds in the unit that people would use: `75 s`, `12 min`, `36.4 days`."""
    for limit, unit, form in _DURATIONS:
        if seconds < limit:
            return form.format(seconds / unit)
    return f"{seconds / _YEAR:,.0f} years"


def amount(count: float, unit: str = "B") -> str:
    """Return a count with three digits and the unit's decimal prefix: `10.8 GB`, `712 GFLOP`."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if count < 999.5:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{count:,.0f} E{unit}"
