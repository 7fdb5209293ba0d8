"""Captions: read back as written; a sample without one is an error that names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tread_lab.config import UserError
from tread_lab.data.caption_files import read_captions, write_captions


def test_captions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "captions.jsonl"
    assert read_captions(path) is None
    write_captions(path, [["a dog", "ein Hündchen"], ["two\nlines\u2028"]])
    assert path.read_text(encoding="utf-8").startswith('{"captions": ["a dog", "ein Hündchen"]}\n')
    assert read_captions(path, 2) == [("a dog", "ein Hündchen"), ("two\nlines",)]
    assert read_captions(path / "captions.jsonl") is None  # a single file has none beside it


GOOD = b'{"captions": ["a"]}\n'


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD + b'{"captions": []}\n',
        b'{"captions": [" "]}\n' + GOOD,
        GOOD + b'{"captions": ["a", ""]}\n',
        GOOD + b'{"captions": ["a", 3]}\n',
        GOOD + b'{"captions": "text"}\n',
        GOOD + b'["b"\n',
        b"\xff\n",
    ],
)
def test_a_missing_caption_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "captions.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=r"^data.path: .*captions.jsonl.* must .*$"):
        read_captions(tmp_path / "captions.jsonl", 2)
