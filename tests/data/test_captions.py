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
