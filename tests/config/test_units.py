"""Durations and amounts are written in the unit that people would use."""

from __future__ import annotations

import math
from pathlib import Path

from tests.four_sweeps import same_as_stored
from tread_lab.config.units import with_interval

STORED = Path(__file__).parent / "stored"
VALUES = (0.0, 6.6e-6, 0.00123456, 31.3163, 1234.5)
HALVES = (0.0, 1e-17, 1e-7, 2.6e-6, 2.6e-5, 0.000347, 2.4269, 222.0)


def test_digits_follow_the_interval() -> None:
    lines = [
        f"{v} and {half}: {with_interval(v, *ends)}, {with_interval(v, *ends, signed=True)}"
        for v in (*VALUES, *(-v for v in VALUES if v))
        for half in (*HALVES, math.nan)
        for ends in [(v - half, v + half)]
    ]
    same_as_stored(STORED / "intervals.txt", "\n".join(lines) + "\n")
