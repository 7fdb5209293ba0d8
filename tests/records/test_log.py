"""Claims about append-only files: torn and changed lines are noticed, replays change nothing."""

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
from tread_lab.records.checksums import checksum
from tread_lab.records.durable import DiskFull
from tread_lab.records.log import (
    Entry,
    LogWriter,
    append_line,
    latest,
    open_lines,
    read_entries,
    read_lines,
    with_checksum,
)
from tread_lab.records.log import without_checksum as read


def test_a_line_ends_with_the_checksum_of_all_before_it() -> None:
    assert with_checksum({"a": 1}) == '{"a": 1, "crc": "fba18e97"}\n'
    assert read(b'{"a": 1, "crc": "fba18e97"}\n') == {"a": 1}
    assert read(b'{"a": 1, "crc": "fba18e97"}') == {"a": 1}
    for damaged in (b'{"a": 2, "crc": "fba18e97"}\n', b'{"a": 1}\n', b"", b"\xff\n", b'"crc": "'):
        assert read(damaged) is None
    for body in ('{"a": }', '{"a":' * 9999 + "1" + "}" * 9999):  # of another program
        assert read(f'{body[:-1]}, "crc": "{checksum(body)}"}}'.encode()) is None


def test_reading_begins_at_a_byte_and_passes_over_damage(tmp_path: Path) -> None:
    path = tmp_path / "x" / "lines.jsonl"
    assert list(read_lines(path)) == []
    for n in (1, 2, 3):
        append_line(path, {"n": n})
    length = len(with_checksum({"n": 1}))
    assert [tree["n"] for tree in read_lines(path, length)] == [2, 3]
    assert [tree["n"] for tree in read_lines(path, length + 1)] == [3]
    assert list(read_lines(path / "below")) == []


def test_a_torn_last_line_is_ended_and_a_whole_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    assert path.read_bytes().count(b"\n") == 2
    path.write_bytes(path.read_bytes()[:-3])
    append_line(path, {"n": 3})
    assert [tree["n"] for tree in read_lines(path)] == [1, 3]
    assert path.read_bytes().count(b"\n") == 3


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(log.os, "fsync", full)
    with pytest.raises(DiskFull, match=r"cannot write .*x.jsonl: No space left on device; make"):
        append_line(tmp_path / "x.jsonl", {})
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"cannot write .*; choose another folder with --root"):
        open_lines(tmp_path / "file" / "x.jsonl")


def test_a_text_that_looks_like_a_checksum_is_read_as_written(tmp_path: Path) -> None:
    tree = {"reason": 'he said: a, "crc": "1"}', "n": 1}
    append_line(tmp_path / "x.jsonl", tree)
    assert list(read_lines(tmp_path / "x.jsonl")) == [tree]
    assert read(b'{"a": "x, \\"crc\\": \\"y", "crc": "00000000"}\n') is None
    append_line(tmp_path / "y.jsonl", {"a": {"crc": "1", "b": 2}, "crc": "me"})
    assert list(read_lines(tmp_path / "y.jsonl")) == [{"a": {"crc": "1", "b": 2}, "crc": "me"}]


def write(path: Path, *steps: int, key: str = "train/loss") -> None:
    with LogWriter(path) as log:
        for step in steps:
            log(step, **{key: step / 3})


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


def test_a_replay_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for n in (5, 2):  # the sequence goes on after its largest number
        append_line(path, {"n": n, "step": n - 1, "key": "a", "value": 0.5, "time": 1.0})
    write(path, 1, 2, 3)
    write(path, 2, 3, 4)
    entries = latest(read_entries(path))
    assert [(e.step, e.value) for e in entries if e.key != "a"] == [
        (step, step / 3) for step in (1, 2, 3, 4)
    ]
    assert [e.n for e in read_entries(path)] == [5, 2, *range(6, 12)]


def test_clocks_may_jump_the_sequence_decides(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "log.jsonl"
    for now, value in ((2e9, 1.0), (1e9, 2.0)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        with LogWriter(path) as log:
            log(5, loss=value)
    (entry,) = latest(read_entries(path))
    assert entry.value == 2.0


def test_what_the_file_has_lost_comes_back_from_a_history(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as log:
        for step in (1, 2, 3):
            log(step, a=math.nan, b=step / 3)
        history = log.history(2)
    assert {step for step, *_ in json.loads(history)} == {1, 2}
    before = latest(read_entries(path))
    path.write_bytes(path.read_bytes()[100:])
    with LogWriter(path) as log:
        assert log.restore(history) == 2 and log.restore(history) == 0
    after = latest(read_entries(path))
    assert [(e.step, e.key, repr(e.value), round(e.time, 3)) for e in after] == [
        (e.step, e.key, repr(e.value), e.time) for e in before
    ]
    numbers = [entry.n for entry in read_entries(path)]
    assert numbers == sorted(set(numbers))


def test_a_line_that_is_no_entry_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = {"n": 0, "step": 1, "key": "a", "value": 0.5, "time": 1.5}
    append_line(path, {**whole, "value": "much"})
    for lacking in whole:
        append_line(path, {key: value for key, value in whole.items() if key != lacking})
    append_line(path, whole)
    assert list(read_entries(path)) == [Entry(0, 1, "a", 0.5, 1.5)]


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
