"""docs/faults.md lists exactly the tests that cause faults, and every fault there is."""

from __future__ import annotations

from tests.faults.table import NAMES, PAGE, faults, known, page


def test_the_page_lists_the_tests_there_are() -> None:
    text = PAGE.read_text()
    assert text == page(known(text)), "run: python tests/faults/table.py --no-run, or -k NAME"


def test_every_fault_has_a_test_and_none_has_failed() -> None:
    assert {fault.number for fault in faults()} == set(NAMES)
    outcomes = known(PAGE.read_text())
    allowed = ("passed", "skipped: ", "not run")
    assert all(outcomes[fault.test].startswith(allowed) for fault in faults())


def test_the_words_of_a_fault_fit_a_table() -> None:
    for fault in faults():
        assert fault.number in NAMES
        assert 10 < len(fault.survived) < 250 and "|" not in fault.survived
