"""Tests that did not run are named at the end, with what to install."""

from __future__ import annotations

from tests.conftest import not_run


def test_skipped_tests_are_grouped_by_reason_with_the_mend() -> None:
    skipped = [("a.py", "needs Chromium"), ("b.py", "needs Chromium"), ("c.py", "no such thing")]
    assert not_run(skipped) == [
        "2 not run: needs Chromium (a.py, b.py); to run them: apt-get install chromium",
        "1 not run: no such thing (c.py)",
    ]
