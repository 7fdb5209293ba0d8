"""Tables fit their width: columns go in their order, then rows are stacked; no value is cut."""

from __future__ import annotations

import pytest

from tests.terminal.conftest import Screen
from tread_lab.terminal import console as module
from tread_lab.terminal.console import answer, fitted, metrics_line, say, show_lines, show_pairs

HEADS, ROWS = ["run", "state", "why"], [["abcd", "failed", "no memory"], ["ef", "completed", ""]]


def test_a_table_drops_columns_in_their_order_then_stacks_its_rows(screen: Screen) -> None:
    for width, drop in (
        (28, []),  # 4 + 9 + 9, and 2 beside each
        (28, ["why", "state"]),
        (27, ["why", "state"]),
        (17, ["why", "state"]),
        (16, ["why", "state"]),
        (10, ["why"]),
    ):
        screen.width = width
        drops = f", without {' and '.join(drop)} if need be" if drop else ""
        screen(f"{width} columns{drops}", fitted, HEADS, ROWS, drop=drop, width=width)
    screen("names and values", show_pairs, [("a", "1"), ("long", "2")])


def test_metrics_have_their_digits() -> None:
    assert metrics_line({"a": 0.123456789, "b": 2.0}) == "a 0.1235, b 2.000"
    assert metrics_line({"fd[x]@100": 33.6801}) == "fd[x]@100 33.7", "as in a ranking"
    assert metrics_line({}) == "drawn"


LONG = "[b]" + 300 * "x" + "[/b]"  # text that rich would take for markup, longer than a line


def test_notices_go_to_stderr_and_answers_to_stdout_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(LONG)
    assert capsys.readouterr() == ("", f"{LONG}\n")
    answer(LONG)
    assert capsys.readouterr() == (f"{LONG}\n", "")
    show_lines(module.notices, [LONG, "2"])
    assert capsys.readouterr() == ("", f"{LONG}\n2\n")
    assert module.answers.width == module.notices.width == 160  # of what is no terminal
