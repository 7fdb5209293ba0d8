"""Tables fit their width: columns go in their order, then rows are stacked; no value is cut."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from tread_lab.terminal import console as module
from tread_lab.terminal.console import answer, fitted, metrics_line, say, show_lines, show_pairs

HEADS, ROWS = ["run", "state", "why"], [["abcd", "failed", "no memory"], ["ef", "completed", ""]]


def shown(table: Table, width: int) -> list[str]:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize(
    ("width", "heads", "hidden"),
    [
        (28, ["run", "state", "why"], None),  # 4 + 9 + 9, and 2 beside each
        (27, ["run", "state"], "not shown: why"),
        (17, ["run", "state"], "not shown: why"),
        (16, ["run"], "not shown: state, why"),
    ],
)
def test_columns_are_dropped_until_the_rest_fits(
    width: int, heads: list[str], hidden: str | None
) -> None:
    table = fitted(HEADS, ROWS, drop=["why", "state"], width=width)
    assert [str(column.header) for column in table.columns] == heads
    assert table.caption == hidden and table.row_count == 2


def test_rows_are_stacked_where_what_must_stay_does_not_fit() -> None:
    table = fitted(HEADS, ROWS, drop=["why"], width=10)
    assert shown(table, 40) == [" abcd", "   failed", " ef", "   completed"]
    whole = fitted(HEADS, ROWS, drop=[], width=28)
    assert shown(whole, 40)[1] == " abcd  failed     no memory"


def test_pairs_stand_in_two_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_pairs([("a", "1"), ("long", "2")])
    assert capsys.readouterr().out == "a     1\nlong  2\n"
    assert metrics_line({"a": 0.123456789, "b": 2.0}) == "a 0.123457, b 2"
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


@pytest.mark.parametrize("terminal", ["stdout", "stderr"])
def test_a_stream_that_is_no_terminal_has_160_columns(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[bool, int | None] = {}

    def console(*, stderr: bool, width: int | None, **options: bool) -> None:
        assert options == {"highlight": False, "soft_wrap": True}
        made[stderr] = width

    monkeypatch.setattr(module, "Console", console)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{name}.isatty", lambda name=name: name == terminal)
    for stderr in (False, True):
        module._console(stderr=stderr)
    assert made == {terminal == "stdout": 160, terminal == "stderr": None}
