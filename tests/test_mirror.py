"""The longest tests start first."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST

ROOT = Path(__file__).parents[1]


def test_the_files_that_start_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []
