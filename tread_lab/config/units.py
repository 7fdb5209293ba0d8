"""Counts, durations, amounts and intervals as texts: `36.4 days`, `10.8 GB`, `+0.0066 ± 0.0026`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

Word = TypeVar("Word", bound=str)

_HOUR, _DAY, _YEAR = 3600.0, 86400.0, 365.25 * 86400.0
_LONG = 10_000.0  # seconds from which a quantity is told in hours; neighbours share a unit
_PREFIXED = {"FLOP": "FLOP", "byte": "B", "J": "J"}  # unit -> as it stands after k, M, G
_DURATIONS = (  # below which seconds, how many seconds the unit has, how it is written
    (90.0, 1.0, "{:.0f} s"),
    (90 * 60.0, 60.0, "{:.0f} min"),
    (4 * _DAY, _HOUR, "{:.1f} h"),
    (2 * _YEAR, _DAY, "{:.1f} days"),
)


def short(value: float) -> str:
    """Return `0.5` for 0.5 and `3` for 3.0: six digits, or all where these are another number."""
    text = f"{value:g}"
    return text if float(text) == value else repr(value)


def counted(n: int, noun: str) -> str:
    """Return `1 run`, `2 runs`, `5,000 runs`."""
    return f"{n} {noun}" if n == 1 else f"{n:,} {noun}s"


def counts_text(states: Counter[Word]) -> str:
    """Return `3 completed, 1 failed`, the most frequent first."""
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


def duration(seconds: float) -> str:
    """Return seconds in a readable unit: `75 s`, `12 min`, `36.4 days`.

    Negative durations count as 0.
    """
    seconds = max(seconds, 0.0)
    for limit, unit, form in _DURATIONS:
        if seconds < limit:
            return form.format(seconds / unit)
    return f"{seconds / _YEAR:,.0f} years"


def span(ends: Iterable[str]) -> str:
    """Return `10.2 h to 19.1 h`, or one duration if both ends read the same."""
    return " to ".join(dict.fromkeys(ends))


def amount(count: float, unit: str = "B") -> str:
    """Return a count with three digits and the unit's decimal prefix: `10.8 GB`, `712 GFLOP`."""
    for prefix in ("", "k", "M", "G", "T", "P"):
        if count < 999.5:
            return f"{count:.3g} {prefix}{unit}"
        count /= 1000
    return f"{float(f'{count:.3g}'):,.12g} E{unit}"


def quantity(value: float, unit: str, *, signed: bool = False) -> str:
    """Return a value with its unit: `765 GFLOP`, `12.4 s`, `3.2 h`, `1,230 images/s`."""
    if signed or value < 0:
        return ("-" if value < 0 else "+") + quantity(abs(value), unit)
    if unit in _PREFIXED:
        return amount(value, _PREFIXED[unit])
    if unit == "s" and value >= _LONG:
        return duration(value)
    return f"{float(f'{value:.3g}'):,.12g} {unit}".strip()


def ratio(value: float) -> str:
    """Return a cost over another, `0.71`."""
    return f"{value:.2f}"


def precise(value: float, half: float, *, signed: bool = False, digits: int = 4) -> str:
    """Return a value rounded to two digits of its interval's half-width.

    Args:
        digits: of a value without an interval.
    """
    sign = "+" if signed else ""
    if not (math.isfinite(half) and half > 0):
        return f"{value:{sign}#.{digits}g}".rstrip(".") if value else "0"
    decimals = 1 - math.floor(math.log10(float(f"{half:.1e}")))
    if decimals <= 6:
        return f"{round(value, decimals):{sign}z.{max(decimals, 0)}f}"
    power = math.floor(math.log10(abs(value) or half))
    return f"{value:{sign}.{max(decimals + power, 0)}e}".replace("e-0", "e-").replace("e+00", "")


def with_interval(
    value: float, low: float, high: float, *, signed: bool = False, digits: int = 4
) -> str:
    """Return `+0.0066 ± 0.0026`, or the value alone where it has no interval.

    Intervals below 1e-9 of the value are rounding errors and omitted.
    """
    half = (high - low) / 2
    half = 0.0 if half < 1e-9 * abs(value) else half
    text = precise(value, half, signed=signed, digits=digits)
    return f"{text} ± {precise(half, half)}" if math.isfinite(half) else text
