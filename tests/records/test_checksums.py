"""Claims about checksums: any change of any byte is noticed, and files of before are read."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
import yaml

from tread_lab.records.checksums import (
    changed_files,
    checksum,
    file_checksums,
    json_text,
    json_tree,
    yaml_body,
    yaml_text,
)

TREE = {"state": "completed", "step": 24, "metrics": {"a/b": 0.1 + 0.2, "crc": "no"}, "list": [1]}


def test_what_is_written_is_read() -> None:
    for tree in (TREE, {}, [1, {"crc": "x"}], "text", None):
        assert json_tree(json_text(tree)) == tree
    body = yaml.safe_dump(TREE)
    assert yaml_body(yaml_text(body)) == body and yaml.safe_load(yaml_text(body)) == TREE


def test_other_programs_read_it_too() -> None:
    assert {k: v for k, v in json.loads(json_text(TREE)).items() if k != "crc"} == TREE


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_every_changed_bit_and_every_cut_is_noticed(kind: str) -> None:
    body = yaml.safe_dump(TREE)
    text = json_text(TREE) if kind == "json" else yaml_text(body)
    changed = [text[:n] + chr(ord(text[n]) ^ 1) + text[n + 1 :] for n in range(len(text))]
    for damaged in [*changed, *(text[:n] for n in range(8, len(text)))]:
        with contextlib.suppress(ValueError):
            if kind == "json":  # only the checksum's own key was hit
                assert {key: json_tree(damaged).get(key) for key in TREE} == TREE
            else:  # only the mark of the checksum was hit
                assert yaml_body(damaged).endswith(body)


def test_files_without_a_checksum_are_read_as_they_are() -> None:
    assert json_tree(json.dumps(TREE)) == TREE
    assert yaml_body("a: 1\n") == "a: 1\n"


def test_a_file_is_changed_if_it_was_cut_or_a_byte_differs_and_not_if_it_grew(
    tmp_path: Path,
) -> None:
    file = tmp_path / "losses.npz"
    file.write_bytes(b"123456789")
    stored = file_checksums([file, tmp_path / "absent"])
    assert stored == {"losses.npz": {"bytes": 9, "crc": 0xCBF43926}}  # the CRC-32 of its standard
    assert changed_files(tmp_path, stored) == []
    for content, changed in ((b"12345678", True), (b"123456780", True), (b"123456789+", False)):
        file.write_bytes(content)
        assert (changed_files(tmp_path, stored) == ["losses.npz"]) == changed
    file.unlink()
    assert changed_files(tmp_path, stored) == []


LARGEST = 16 * 2**20  # bytes


@pytest.mark.parametrize(("size", "crc"), [(LARGEST, 2759631178), (LARGEST + 1, 0)])
def test_of_a_larger_file_the_size_alone_is_compared(size: int, crc: int, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("small", "large")]
    for file in files:
        file.touch()
    os.truncate(file, size)
    stored = file_checksums(files)
    assert list(stored.items()) == [
        ("large", {"bytes": size, "crc": crc}), ("small", {"bytes": 0, "crc": 0})
    ]  # fmt: skip
    with file.open("r+b") as changed:
        changed.write(b"x")  # long before the end
    assert changed_files(tmp_path, stored) == (["large"] if crc else [])
    os.truncate(file, size - 1)
    assert changed_files(tmp_path, stored) == ["large"]


def test_a_checksum_has_eight_digits() -> None:
    assert [checksum(text) for text in ("", "a", "a70")] == [
        "00000000", "e8b7be43", "008ae89d"
    ]  # fmt: skip
