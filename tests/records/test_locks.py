"""Claims about locks: held, free, absent, and on a file system without them."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from tread_lab.records import locks
from tread_lab.records.lab import Lab
from tread_lab.records.locks import Busy, exclusive, is_held


def fails_with(number: int) -> Any:
    def flock(file: Any, how: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


def test_a_second_owner_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, "sweep x"):
        assert is_held(path)
        with pytest.raises(Busy, match=rf"sweep x is in use .*pid {os.getpid()}"):
            with exclusive(path, "sweep x"):
                pass
    assert not is_held(path)
    with exclusive(path, "sweep x"):
        pass


@pytest.mark.parametrize("number", [errno.EWOULDBLOCK, errno.EACCES, errno.EINTR])
def test_a_lock_that_is_refused_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "lock"
    path.touch()
    monkeypatch.setattr(locks.fcntl, "flock", fails_with(number))
    assert is_held(path)
    with pytest.raises(Busy), exclusive(path, "x"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_file_stands_in_for_unsupported_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(locks.fcntl, "flock", fails_with(number))
    folder = Lab(tmp_path).sweep("s")
    with folder.lock():
        assert folder.driven
        with (
            pytest.raises(Busy, match=rf"pid {os.getpid()} on .*remove \S+\.owner$"),
            folder.lock(),
        ):
            pass
    assert not folder.driven
    with folder.lock():  # which its owner has given back
        pass


@pytest.mark.parametrize("again", [False, True])
def test_a_lock_whose_folder_goes_while_one_waits_for_it_is_not_held(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rm` removes the folder of a run while it holds its lock."""
    path, flock = tmp_path / "run" / "lock", fcntl.flock

    def waits(file: Any, how: int) -> None:
        path.parent.rename(tmp_path / "old")
        if again:
            path.parent.mkdir()
            path.touch()
        flock(file, how)

    monkeypatch.setattr(locks.fcntl, "flock", waits)
    with pytest.raises(Busy), exclusive(path, "x"):
        pass


def test_lock_never_taken_is_free(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "lock")
    (tmp_path / "lock").touch()
    with (tmp_path / "lock").open() as looked_at:  # by another who asks the same
        fcntl.flock(looked_at, fcntl.LOCK_SH)
        assert not is_held(tmp_path / "lock")
