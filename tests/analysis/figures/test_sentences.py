"""Numbers have three digits and units, and a trend is claimed beyond one half only."""

from __future__ import annotations

import pytest

from tread_lab.analysis.figures.sentences import joined, span, trend


def test_differences_have_their_signs() -> None:
    assert span(0.5, 0.25, 0.75) == "+0.50 \u00b1 0.25 (95% interval)"
    assert span(0.5, float("nan"), float("nan")) == "+0.5000"


@pytest.mark.parametrize(
    ("correlation", "text"), [(0.51, "up"), (0.5, "no clear trend"), (-0.5, "no clear trend"),
                              (-0.51, "down")]
)  # fmt: skip
def test_a_trend_is_claimed_beyond_one_half(correlation: float, text: str) -> None:
    assert trend(correlation, "up", "down") == text


def test_many_names_are_counted() -> None:
    assert joined(["a", "b->c", "d"]) == "a, b\N{RIGHTWARDS ARROW}c and d"
    assert joined("abcdefgh") == "a, b, c, d, e, f and 2 more"
