"""docs/faults.md lists exactly the tests that cause faults, and every fault there is."""

from __future__ import annotations

from tests.faults.table import NAMES, PAGE, faults, page


def test_page_lists_the_tests_of_faults() -> None:
    assert PAGE.read_text() == page(), "run: python tests/faults/table.py"
    assert {fault.number for fault in faults()} == set(NAMES)
    assert all(10 < len(f.survived) < 250 and "|" not in f.survived for f in faults())
