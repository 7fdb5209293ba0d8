"""What a page says of a sweep's times is what its plan, its sessions and its driver say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tread_lab.analysis.report.page import times_text
from tread_lab.records.log import append_line
from tread_lab.records.sweep_folder import SweepFolder

CREATED = 1795582780.0  # 25 November 2026, 04:59:40 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_when_a_sweep_was_planned_how_long_it_was_worked_at_and_what_is_left(
    tmp_path: Path,
) -> None:
    folder = SweepFolder(tmp_path)
    assert times_text(folder, None) == ""
    for session, seconds in (("a", 300.0), ("b", 20.0), ("b", 360.0)):
        line = {"session": session, "seconds": seconds, "time": CREATED}  # of earlier versions
        append_line(folder.spent_path, line)
    told = "Planned on 25 November 2026, 04:59 UTC; worked at for 11 min"
    assert times_text(folder, CREATED) == f"{told}."
    for left, said in (("3 min", "; about 3 min left."), ("...", ".")):
        folder.time_left_path.write_text(left)
        assert times_text(folder, CREATED) == told + said
