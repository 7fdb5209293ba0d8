"""Removable files are counted by kind; what stays until it is asked for is said first."""

from __future__ import annotations

from pathlib import Path

from tests.terminal.conftest import Screen
from tread_lab.sweep.gc import Removable
from tread_lab.terminal.gc import show_removable

FILES = [
    Removable("scratch", Path("/a"), 1000),
    Removable("optimizer state", Path("/b"), 500_000, "run"),
    Removable("scratch", Path("/c"), 2000),
]


def test_kinds_are_counted_in_their_order_and_what_stays_is_offered(screen: Screen) -> None:
    screen("listed", show_removable, FILES, None, as_json=False, kept=4_000_000)
    screen("freed", show_removable, FILES, 3000, as_json=False)
    screen("none", show_removable, [], None, as_json=False, kept=2000)
    screen("for scripts", show_removable, FILES[1:2], 5, as_json=True, kept=9)
