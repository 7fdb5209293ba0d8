"""Claims about append-only files: a torn last line is dropped, replays change nothing."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.records import log
from tread_lab.records.durable import DiskFull
from tread_lab.records.log import (
    LogWriter,
    append_line,
    latest,
    open_lines,
    read_entries,
    read_lines,
)


def test_reading_begins_at_first_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "x" / "lines.jsonl"
    assert list(read_lines(path)) == []
    for n in (1, 2, 3):
        append_line(path, {"n": n})
    length = len(json.dumps({"n": 1}) + "\n")
    assert [tree["n"] for tree in read_lines(path, length)] == [2, 3]
    assert [tree["n"] for tree in read_lines(path, length + 1)] == [3]
    assert list(read_lines(path / "below")) == []


def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    path.write_bytes(path.read_bytes()[:-1])
    assert [tree["n"] for tree in read_lines(path)] == [1]
    append_line(path, {"n": 3})
    assert [tree["n"] for tree in read_lines(path)] == [1, 3]
    assert path.read_bytes().count(b"\n") == 2


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log.os, "fsync", full)
    with pytest.raises(DiskFull, match=r"cannot write .*x.jsonl: No space left on device; make"):
        append_line(tmp_path / "x.jsonl", {})
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"cannot write .*; choose another folder with --root"):
        open_lines(tmp_path / "file" / "x.jsonl")


def test_what_is_written_is_read_at_once_with_every_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 12.34567)
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as log:
        log(1, **{"a": 0.1 + 0.2, "b": math.inf, "c": math.nan})
        entries = list(read_entries(path))
    assert [(e.key, repr(e.value), e.time) for e in entries] == [
        ("a", "0.30000000000000004", 12.346), ("b", "inf", 12.346), ("c", "nan", 12.346)
    ]  # fmt: skip


def test_last_entry_of_a_step_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    for now, steps in ((2e9, (1, 2, 3)), (1e9, (2, 3, 4))):  # clocks may jump
        monkeypatch.setattr("time.time", lambda now=now: now)
        with LogWriter(path) as log:
            for step in steps:
                log(step, loss=step + now)
    assert [(e.step, e.value) for e in latest(read_entries(path))] == [
        (1, 1 + 2e9), (2, 2 + 1e9), (3, 3 + 1e9), (4, 4 + 1e9)
    ]  # fmt: skip


def test_a_disk_that_is_full_on_closing_is_told_unless_the_run_failed_before(
    tmp_path: Path,
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(DiskFull, match=r"log.jsonl: full; make room"):
        with LogWriter(tmp_path / "log.jsonl") as log:
            log._file = SimpleNamespace(close=full)  # type: ignore[assignment]
    with pytest.raises(KeyError, match="before"):
        with LogWriter(tmp_path / "log.jsonl") as log:
            log._file = SimpleNamespace(close=full)  # type: ignore[assignment]
            raise KeyError("before")
