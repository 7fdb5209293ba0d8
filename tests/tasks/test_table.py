"""The table of tasks names the tests that carry their numbers."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("README.md")
MARKED = r"@pytest\.mark\.task\(([\d, ]+)\)\n(?:(?!def ).*\n)*?def (\w+)\("


def test_each_task_has_a_row_with_its_tests() -> None:
    lines = [line for line in TABLE.read_text().splitlines() if re.match(r"\| \d", line)]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    assert [int(number) for number, *_ in cells] == [*range(1, 67)]
    named = {
        (int(row[0]), file, test)
        for row in cells
        for file, test in re.findall(r"`([\w/.]+)::(\w+)`", row[-1])
    }
    marked = {
        (int(number), str(path.relative_to(TESTS)), test)
        for path in TESTS.rglob("test_*.py")
        for numbers, test in re.findall(MARKED, path.read_text())
        for number in numbers.split(",")
    }
    assert named == marked
