"""The longest tests start first, and what did not run is named."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST, not_run

ROOT = Path(__file__).parents[1]


def test_the_files_that_start_first_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).exists()] == []


def test_skipped_tests_are_grouped_by_reason_with_the_mend() -> None:
    skipped = [("a.py", "needs Chromium"), ("b.py", "needs Chromium"), ("c.py", "no such thing")]
    assert not_run(skipped) == [
        "2 not run: needs Chromium (a.py, b.py); to run them: apt-get install chromium",
        "1 not run: no such thing (c.py)",
    ]
