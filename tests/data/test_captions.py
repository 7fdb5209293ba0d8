"""Captions: read back as written; a sample without one is an error that names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.data.captions import read_captions, write_captions
from tread_lab.specs import UserError


def test_captions_are_read_back(tmp_path: Path) -> None:
    assert read_captions(tmp_path, 2) is None
    write_captions(tmp_path / "captions.jsonl", [["a dog", "ein Hündchen"], ["two\nlines\u2028"]])
    assert read_captions(tmp_path, 2) == [("a dog", "ein Hündchen"), ("two\nlines",)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"captions": ["a"]}\n', "has 1 lines, and there are 2 samples"),
        ('{"captions": ["a"]}\n{"captions": []}\n', "line 2: sample 1 has no caption"),
        ('{"captions": [" "]}\n{"captions": ["b"]}\n', "line 1: sample 0 has no caption"),
        ('{"captions": ["a"]}\n{"caption": ["b"]}\n', "line 2: write"),
        ('{"captions": ["a"]}\n["b"\n', "line 2: write"),
    ],
)
def test_a_missing_caption_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "captions.jsonl").write_text(text)
    with pytest.raises(UserError, match=says):
        read_captions(tmp_path, 2)


def test_captions_lie_in_their_own_letters_beside_a_folder_alone(tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    write_captions(path, [["Hündchen"], ["a", "b"]])
    assert path.read_text(encoding="utf-8") == (
        '{"captions": ["Hündchen"]}\n{"captions": ["a", "b"]}\n'
    )
    assert read_captions(path, 2) is None
    path.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"captions.jsonl cannot be read"):
        read_captions(tmp_path, 1)


@pytest.mark.parametrize(
    ("texts", "says"), [('["a", ""]', "has no caption"), ('["a", 3]', "write"), ("3", "write")]
)
def test_every_caption_of_a_sample_is_a_text(tmp_path: Path, texts: str, says: str) -> None:
    (tmp_path / "captions.jsonl").write_text(f'{{"captions": ["a"]}}\n{{"captions": {texts}}}\n')
    with pytest.raises(UserError, match=f"line 2: .*{says}"):
        read_captions(tmp_path, 2)
