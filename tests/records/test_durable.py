"""Claims about files: whole or absent, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.records.durable import read_json, replacing, write_json
from tread_lab.records.lab import Lab
from tread_lab.specs.errors import UserError


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_json(path) == 1 and list(tmp_path.iterdir()) == [path]


def test_an_unwritable_folder_is_the_users_mistake() -> None:
    with pytest.raises(UserError, match=r"cannot write /proc/no/x.json.*--root"):
        write_json(Path("/proc/no/x.json"), 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_said_and_nothing_is_taken_as_good(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x.json"
    write_json(path, "before")
    with pytest.raises(UserError, match="No space left on device; make room"), replacing(path):
        with open("/dev/full", "w") as full:  # noqa: PTH123
            full.write("x")
    assert read_json(path) == "before" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a\0b", "/etc"])
def test_names_cannot_leave_the_lab(tmp_path: Path, name: str) -> None:
    lab = Lab(tmp_path)
    with pytest.raises(UserError, match="is not a name"):
        lab.run(name)
    with pytest.raises(UserError, match="is not a name"):
        lab.sweep(name)
