"""Lines of append-only files: each carries its checksum, a torn one is ended and passed over."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tread_lab.records import lines
from tread_lab.records.durable import DiskFull
from tread_lab.records.lines import append_line, open_lines, read_lines, with_checksum
from tread_lab.records.lines import without_checksum as read


def test_a_line_ends_with_the_checksum_of_all_before_it() -> None:
    assert with_checksum({"a": 1}) == '{"a": 1, "crc": "fba18e97"}\n'
    assert read(b'{"a": 1, "crc": "fba18e97"}\n') == {"a": 1}
    assert read(b'{"a": 1, "crc": "fba18e97"}') == {"a": 1}
    for damaged in (b'{"a": 2, "crc": "fba18e97"}\n', b'{"a": 1}\n', b"", b"\xff\n", b'"crc": "'):
        assert read(damaged) is None


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

    monkeypatch.setattr(lines.os, "fsync", full)
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


def test_an_append_reads_no_more_than_the_last_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_line(tmp_path / "x.jsonl", {"n": 1})
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("reads the whole file"))
    append_line(tmp_path / "x.jsonl", {"n": 2})
    assert [tree["n"] for tree in read_lines(tmp_path / "x.jsonl")] == [1, 2]
