"""Claims about files: whole or absent, whatever happens."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tread_lab.config.errors import UserError
from tread_lab.records.durable import (
    DiskFull,
    disk_error,
    read_json,
    replacing,
    write_json,
)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RuntimeError(), RuntimeError), (OSError(errno.ENOSPC, "full"), UserError)],
)
def test_a_failed_write_leaves_what_was_there(
    error: Exception, raised: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(raised), replacing(path) as temporary:
        assert temporary.parent == tmp_path and temporary.name.startswith(".x.json.")  # hidden
        temporary.write_text("half")
        raise error
    assert read_json(path) == 1 and list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "x.json", []

    def fsync(descriptor: int) -> None:
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append((what, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_json(path, 1)
    assert calls == [("file", False), ("folder", True)]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_who_may_read_what_was_written_is_for_the_umask(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "x.json", 1)
        with replacing(tmp_path / "replaced") as temporary:  # as safetensors writes
            (own := tmp_path / "own").touch(mode=0o600)
            own.replace(temporary)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("x.json", "replaced")}
    assert modes == {mode}


def test_an_error_that_only_its_words_say_is_the_systems(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "x.safetensors"
    with pytest.raises(DiskFull) as refusal, replacing(path):
        raise RuntimeError("I/O error: out of room (os error 28)")
    assert str(refusal.value) == (
        f"cannot write {path}: No space left on device; make room and run the same command again"
    )
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "choose a folder you may write with --root"),
        (errno.EPERM, "choose a folder you may write with --root"),
        (errno.EACCES, "choose a folder you may write with --root"),
        (errno.EDQUOT, "make room and run the same command again"),
        (errno.ENOSPC, "make room and run the same command again"),
        (errno.EIO, "choose another folder with --root"),
    ],
)
def test_a_failed_write_says_what_to_do(number: int, remedy: str) -> None:
    refusal = disk_error(OSError(number, "why"), Path("x"))
    assert str(refusal) == f"cannot write x: why; {remedy}"
    assert isinstance(refusal, DiskFull) == ("make room" in remedy)
    assert refusal.exit_code == (3 if "make room" in remedy else 2)
