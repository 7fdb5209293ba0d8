"""Members of tars are found with their places, and damage is told before anything is read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tread_lab.data.tars import members, tars_of
from tread_lab.specs import UserError

FILES = {"a/1.x.npy": b"one", "a/1.cls": b"5", "2.x.npy": b"two" * 400, "3.other": b"-", "4": b"."}


def write(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with tarfile.open(path, "w") as archive:
        folder = tarfile.TarInfo("a.x.npy")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_members_have_a_key_a_part_a_place_and_their_content(tmp_path: Path) -> None:
    tar = write(tmp_path / "a.tar")
    found = list(members(tar, ("x.npy", "cls"), read=("cls",)))
    assert [(m.key, m.part, m.size, m.content) for m in found] == [
        ("a/1", "x.npy", 3, b""),
        ("a/1", "cls", 1, b"5"),
        ("2", "x.npy", 1200, b""),
    ]
    raw = tar.read_bytes()
    assert [raw[m.offset : m.offset + 3] for m in found] == [b"one", b"5\0\0", b"two"]
    assert [m.offset % 512 for m in found] == [0, 0, 0]


def test_a_damaged_header_is_no_end_of_a_tar(tmp_path: Path) -> None:
    tar = write(tmp_path / "a.tar")
    whole = tar.read_bytes()
    second = next(members(tar, ("cls",))).offset - 512
    tar.write_bytes(whole[: second + 10] + b"\xff" * 20 + whole[second + 30 :])
    with pytest.raises(UserError, match=rf"^data.path: {tar}: it is damaged .*no header at byte"):
        list(members(tar, ("x.npy",)))
    tar.write_bytes(b"\x1f\x8b" + whole)
    with pytest.raises(UserError, match="or no uncompressed tar"):
        list(members(tar, ("x.npy",)))


def test_tars_of_a_folder_or_of_a_glob_are_in_order(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "c.txt"):
        (tmp_path / name).touch()
    both = [tmp_path / "a.tar", tmp_path / "b.tar"]
    assert tars_of(tmp_path) == tars_of(tmp_path / "[ab]*") == both
    assert tars_of(tmp_path / "b.tar") == [tmp_path / "b.tar"] and tars_of(tmp_path / "x") == []


def test_tars_are_sorted_whatever_order_the_system_lists_them_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(tmp_path / name) for name in ("b.tar", "c.tar", "a.tar")]
    monkeypatch.setattr("tread_lab.data.tars.glob.glob", lambda pattern: names)
    assert [path.name for path in tars_of(tmp_path)] == ["a.tar", "b.tar", "c.tar"]
