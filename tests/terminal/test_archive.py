"""What an export or import says: what became of each run, and how its sweep is shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tests.terminal.conftest import Screen
from tread_lab.records.lab import Lab
from tread_lab.records.sweep_archive import DIFFERENT, NEW, Transfer
from tread_lab.terminal.archive import show_imported


def test_what_became_of_each_run_is_counted_and_how_they_are_shown_is_said(
    lab: Lab, screen: Screen
) -> None:
    runs, line = Counter({NEW: 3, DIFFERENT: 1}), "run 3f2a stays"
    part = Transfer("wide", runs, 9, 2048, False, (line,))
    screen("no weights", show_imported, part, lab)
    screen("no run", show_imported, replace(part, runs=Counter(), weights=True, lines=()), lab)
