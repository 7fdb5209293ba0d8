"""Numbers have three digits and units, and a trend beyond one half has p < 0.05."""

from __future__ import annotations

import pytest

from tread_lab.analysis.figures.sentences import joined, span, trend


def test_differences_have_their_signs() -> None:
    assert span("gap/heldout", 0.5, 0.25, 0.75) == "+0.50 \u00b1 0.25 (95% interval)"
    nan = float("nan")
    assert span("gap/heldout", 0.5, nan, nan) == "+0.5000"
    assert span("delta/fd@1k", 0.5, nan, nan) == "+0.500"


@pytest.mark.parametrize(
    ("correlation", "chance", "text"),
    [
        (0.51, 0.04, "up"),
        (0.5, 0.04, "no clear trend"),
        (-0.51, 0.04, "down"),
        (0.7, 0.05, "no clear trend"),
        (1.0, float("nan"), "no clear trend"),
    ],
)
def test_a_trend_is_claimed_with_its_p(correlation: float, chance: float, text: str) -> None:
    assert trend(correlation, chance, "up", "down") == text


def test_many_names_are_counted() -> None:
    assert joined(["a", "b->c", "d"]) == "a, b\N{RIGHTWARDS ARROW}c and d"
    assert joined("abcdefgh") == "a, b, c, d, e, f and 2 more"
