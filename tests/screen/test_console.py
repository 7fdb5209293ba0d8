"""Tables fit their width: columns go in their order, then rows are stacked; no value is cut."""

from __future__ import annotations

import pytest
from rich.console import Console
from rich.table import Table

from tread_lab.screen.console import fitted, metrics_line, show_pairs

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
