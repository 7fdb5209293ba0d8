"""Claims about files: whole or absent, torn lines dropped, one owner of a lock."""

from __future__ import annotations

import errno
import math
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tread_lab.config.errors import UserError
from tread_lab.records import locks
from tread_lab.records.durable import (
    DiskFull,
    LogWriter,
    append_line,
    latest,
    read_entries,
    read_json,
    read_lines,
    replacing,
    write_json,
)
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError(), RuntimeError),
        (OSError(errno.ENOSPC, "full"), DiskFull),
        (RuntimeError("I/O error: out of room (os error 28)"), DiskFull),  # of safetensors
    ],
)
def test_failed_write_keeps_former_file(
    error: Exception, raised: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(raised), replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert read_json(path) == 1 and list(tmp_path.iterdir()) == [path]


def test_file_is_synced_before_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "x.json", []

    def fsync(descriptor: int) -> None:
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append((what, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_json(path, 1)
    assert calls == [("file", False), ("folder", True)]


def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x" / "lines.jsonl"
    assert [*read_lines(path), *read_lines(path / "below")] == []
    append_line(path, {"n": 1})
    append_line(path, {"n": 2})
    path.write_bytes(path.read_bytes()[:-1])
    assert [tree["n"] for tree in read_lines(path)] == [1]
    append_line(path, {"n": 3})
    assert [tree["n"] for tree in read_lines(path)] == [1, 3]


def test_line_on_full_disk_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tread_lab.records.durable.os.fsync", full)
    with pytest.raises(
        DiskFull, match=r"cannot write .*x.jsonl: No space left on device. Free space"
    ):
        append_line(tmp_path / "x.jsonl", {})
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*\. Try another folder with --root"):
        append_line(tmp_path / "file" / "x.jsonl", {})


def test_logged_values_keep_every_bit(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as log:
        log(1, **{"a": 0.1 + 0.2, "b": math.inf, "c": math.nan})
        entries = list(read_entries(path))
    assert [(e.key, repr(e.value)) for e in entries] == [
        ("a", "0.30000000000000004"), ("b", "inf"), ("c", "nan")
    ]  # fmt: skip


def test_last_entry_of_step_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    for now, steps in ((2e9, (1, 2, 3)), (1e9, (2, 3, 4))):  # clocks may jump
        monkeypatch.setattr("time.time", lambda now=now: now)
        with LogWriter(path) as log:
            for step in steps:
                log(step, loss=step + now)
    assert [(e.step, e.value) for e in latest(read_entries(path))] == [
        (1, 1 + 2e9), (2, 2 + 1e9), (3, 3 + 1e9), (4, 4 + 1e9)
    ]  # fmt: skip


@pytest.mark.parametrize("number", [None, errno.EACCES, errno.ENOLCK, errno.ENOTSUP])
def test_lock_has_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """Where the file system has no locks, a file stands in that a person removes after a kill."""

    def unsupported(file: Any, how: int) -> None:
        raise OSError(number, "none")

    folder = Lab(tmp_path).sweep("s")
    if number == errno.EACCES:  # as NFS says of a lock that is held
        folder.path.mkdir(parents=True)
        (folder.path / ".claim").touch()
    if number is not None:
        monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    if number == errno.EACCES:
        assert folder.driven
        with pytest.raises(Busy), folder.lock():
            pass
        return
    remedy = r".*remove \S+\.owner$" if number else ""
    for _ in range(2):  # its owner gives it back
        assert not folder.driven
        with folder.lock():
            assert folder.driven
            with (
                pytest.raises(Busy, match=rf"sweep s is in use .*pid {os.getpid()}{remedy}"),
                folder.lock(),
            ):
                pass
