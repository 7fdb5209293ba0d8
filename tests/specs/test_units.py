"""Durations and amounts are written in the unit that people would use."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tread_lab.specs.units import amount, counted, counts_text, duration, quantity, with_interval

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (60 * 60, "60 min"),
        (90 * 60, "1.5 h"),
        (4 * DAY - HOUR, "95.0 h"),
        (4 * DAY, "4.0 days"),
        (36.4 * DAY, "36.4 days"),
        (2 * 365.25 * DAY, "2 years"),
        (1454264.5 * HOUR, "166 years"),
        (3e11, "9,506 years"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (7.654e11, "FLOP", "765 GFLOP"),
        (-7.654e11, "FLOP", "-765 GFLOP"),
        (0.0123, "s", "0.0123 s"),
        (112.4, "s", "112 s"),
        (9999, "s", "10,000 s"),
        (36000, "s", "10.0 h"),
        (12345.6, "images/s", "12,300 images/s"),
        (3.5e9, "byte", "3.5 GB"),
        (0, "byte", "0 B"),
        (999, "byte", "999 B"),
        (999.6, "byte", "1 kB"),
        (503_800_000_000, "byte", "504 GB"),
        (1e15, "byte", "1 PB"),
        (2.5e21, "byte", "2,500 EB"),
        (0.7083, "", "0.708"),
    ],
)
def test_a_quantity_has_its_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text
    assert amount(10_800_000_000) == "10.8 GB"


@pytest.mark.parametrize(("n", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_one_thing_has_no_s(n: int, text: str) -> None:
    assert counted(n, "run") == text
    states = Counter(["failed", "completed", "completed"])
    assert counts_text(states) == "2 completed, 1 failed"


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (6.6e-6, 2.6e-6, "+6.6e-6 ± 2.6e-6"),
        (31.3163, 2.4269, "+31.3 ± 2.4"),
        (0.00123456, 0.000347, "+0.00123 ± 0.00035"),
        (-0.0004, 0.0099999, "+0.000 ± 0.010"),
        (1234.5, 222.0, "+1230 ± 220"),
        (-2.5, 0.0, "-2.500 ± 0"),
        (0.0, 1e-7, "+0.0 ± 1.0e-7"),
        (-0.0015, 1e-17, "-0.001500 ± 0"),
        (0.123456, math.nan, "+0.1235"),
        (7.0, math.nan, "+7.000"),
        (1234.0, math.nan, "+1234"),
    ],
)
def test_digits_follow_the_interval(value: float, half: float, text: str) -> None:
    assert with_interval(value, value - half, value + half, signed=True) == text
