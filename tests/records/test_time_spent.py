"""Claims about the time of a sweep: sessions add up, a session counts its last entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.records.lines import append_line, read_lines
from tread_lab.records.time_spent import Stopwatch, seconds_spent


def test_sessions_add_up_and_each_counts_its_longest_entry(tmp_path: Path) -> None:
    path = tmp_path / "spent.jsonl"
    for session, seconds in (("a", 10.0), ("a", 25.0), ("b", 5.0), ("a", 20.0)):
        append_line(path, {"session": session, "seconds": seconds})
    assert seconds_spent(path) == 30.0
    assert 30.0 <= Stopwatch(path).seconds < 40.0


def test_nothing_is_written_before_it_is_due(tmp_path: Path) -> None:
    watch = Stopwatch(tmp_path / "spent.jsonl")
    watch.note()
    assert not watch.path.exists()
    watch.note(now=True)
    assert watch.path.exists()


def test_an_entry_is_written_every_quarter_of_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    watch = Stopwatch(tmp_path / "spent.jsonl")
    for now[0] in (115.0, 116.0, 120.0, 131.0, 132.0):
        watch.note()
    assert [line["seconds"] for line in read_lines(watch.path)] == [16.0, 32.0]
