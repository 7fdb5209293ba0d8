"""Durations and amounts are written in the unit that people would use."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from tests.four_sweeps import same_as_stored
from tread_lab.specs.units import (
    counted,
    counts_text,
    duration,
    quantity,
    ratio,
    short,
    with_interval,
)

STORED = Path(__file__).parent / "stored"
HOUR, DAY = 3600.0, 86400.0
YEAR = 365.25 * DAY
UNITS = ("FLOP", "byte", "J", "s", "images/s", "")
NUMBERS = [
    0.0,
    999.5,
    *(digits * 10.0**k for k in range(-5, 22, 2) for digits in (1, 4.5678, 99.96)),
]
EDGES = (89.4, 90, 90 * 60, 4 * DAY, 2 * YEAR)  # of the units of durations
VALUES = (0.0, 6.6e-6, 0.00123456, 31.3163, 1234.5)
HALVES = (0.0, 1e-17, 1e-7, 2.6e-6, 2.6e-5, 0.000347, 2.4269, 222.0)


def test_numbers_and_durations_of_every_size_are_written_so() -> None:
    lines = [f"{s}: {duration(s)}" for edge in EDGES for s in (edge - HOUR / 1e6, edge, 1.2 * edge)]
    lines += [f"{n}: {[quantity(n, unit) for unit in UNITS]}" for n in NUMBERS]
    lines += [f"{n}: {short(n)}, {ratio(n)}" for n in (0.5, 3.0, 0.1 + 0.2, 1e-5, 1_234_567.0)]
    lines += [f"{n}, signed: {quantity(n, 'byte', signed=True)}" for n in (-1e6, 0.0, 1e6)]
    lines += [f"{n}: {counted(n, 'run')}" for n in (0, 1, 2, 5000)]
    lines += [counts_text(Counter(["failed", "completed", "completed"]))]
    same_as_stored(STORED / "units.txt", "\n".join(lines) + "\n")


def test_digits_follow_the_interval() -> None:
    lines = [
        f"{v} and {half}: {with_interval(v, *ends)}, {with_interval(v, *ends, signed=True)}"
        for v in (*VALUES, *(-v for v in VALUES if v))
        for half in (*HALVES, math.nan)
        for ends in [(v - half, v + half)]
    ]
    same_as_stored(STORED / "intervals.txt", "\n".join(lines) + "\n")
