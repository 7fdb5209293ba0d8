"""The terminal prints answers on stdout and notices on stderr, and cuts no value."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tread_lab.cli.console import answers, metrics_line, notices, say, table

LONG = "[b]" + 300 * "x" + "[/b]"  # text that rich would take for markup, longer than a line


@pytest.mark.parametrize("width", [160, 20])
def test_tables_cut_no_value(width: int) -> None:
    printed = io.StringIO()
    rows = [["0123456789abcdef", "failed"], ["[x]", "completed"]]
    Console(file=printed, width=width).print(table(["run", "state"], rows))
    text = "".join(printed.getvalue().split())
    assert set("0123456789abcdef") <= set(text) and "[x]" in text


def test_metrics_have_the_digits_of_a_ranking() -> None:
    assert metrics_line({"a": 0.123456789, "b": 2.0}) == "a 0.1235, b 2.000"
    assert metrics_line({"fd[x]@100": 33.6801}) == "fd[x]@100 33.7"
    assert metrics_line({}) == "drawn"


def test_notices_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say(LONG)
    assert capsys.readouterr() == ("", f"{LONG}\n")
    assert answers.width == notices.width == 160  # of what is no terminal
