"""Progress of an export or import says how far it is in bytes, and when it will end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import replace

import pytest

from tests.terminal.conftest import Screen
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_archive import DIFFERENT, NEW, Transfer
from tread_lab.terminal.archive import bytes_line, show_bytes, show_imported


def test_a_line_says_how_much_is_done_and_what_is_left() -> None:
    assert bytes_line(3_200_000_000, 14_300_000_000, "packed", 86.0) == (
        "3.2 GB of 14.3 GB packed, 5 min left"
    )
    assert bytes_line(20, 10, "packed", 86.0) == "20 B of 10 B packed, 0 s left", "it has grown"
    assert bytes_line(0, 10, "unpacked", 9.0) == "0 B of 10 B unpacked"


def test_the_result_is_returned_without_a_line_of_progress_in_less_than_20_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def steps() -> Generator[tuple[int, int], None, str]:
        yield 1, 2
        yield 2, 2
        return "result"

    assert show_bytes(steps(), "packed") == "result" and capsys.readouterr().err == ""


def test_what_became_of_each_run_is_counted_and_how_they_are_shown_is_said(
    lab: Lab, screen: Screen
) -> None:
    runs, line = Counter({NEW: 3, DIFFERENT: 1}), "run 3f2a stays"
    part = Transfer("wide", runs, 9, 2048, False, (line,))
    screen("no weights", show_imported, part, lab)
    screen("no run", show_imported, replace(part, runs=Counter(), weights=True, lines=()), lab)
