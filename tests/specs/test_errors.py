"""Claims about mistakes: one line each, near names, and limits."""

from __future__ import annotations

import pytest

from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable, first_line, lookup, shown, suggest


def test_a_mistake_is_one_line_of_at_most_a_thousand_characters() -> None:
    assert str(UserError("a\nb\x00")) == "a\\nb\\x00"
    assert str(UserError("x" * 1000)) == "x" * 1000
    assert str(UserError("x" * 1001)) == "x" * 1000 + "..."
    assert (UserError("x").exit_code, Unavailable("x").exit_code) == (2, 3)
    assert str(UserError("wrong").at("a.b")) == "a.b: wrong" and str(UserError("x").at("")) == "x"
    assert UserError("x")._render_traceback_() == ["x"]


def test_the_first_line_of_an_error_or_its_class() -> None:
    assert first_line(ValueError("\n one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"


def test_a_near_name_is_suggested_else_all_are_listed_in_order() -> None:
    assert suggest("rat", ["start", "rate"]) == ", did you mean 'rate'?"
    assert suggest("x", ["b", "a"]) == " (known: a, b)" and suggest("x", []) == ""
    assert lookup({"a": 1}, "a", "what") == 1
    with pytest.raises(UserError, match=r"^what: unknown 'x' \(known: a, b\)$"):
        lookup({"b": 1, "a": 2}, "x", "what")


def test_a_value_is_quoted_with_at_most_60_characters() -> None:
    assert shown(None) == "nothing" and shown("a") == "'a'"
    assert shown("x" * 58) == repr("x" * 58)
    assert shown("x" * 59) == "'" + "x" * 56 + "..."
