"""The manifest of packed arrays: equal data give equal bytes, another format is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tread_lab.data.manifest import read_manifest, write_manifest
from tread_lab.specs import UserError


def test_a_manifest_holds_size_and_digest_of_every_file(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    for name, content in (("b.npy", b"22"), ("a.npy", b"1")):
        (tmp_path / name).write_bytes(content)
    write_manifest(tmp_path, {"source": "x"}, ["b.npy", "a.npy"])
    text = (tmp_path / "manifest.json").read_text()
    assert read_manifest(tmp_path) == {
        "format": "tread-lab packed arrays 1",
        "source": "x",
        "files": {
            "a.npy": {"bytes": 1, "sha256": hashlib.sha256(b"1").hexdigest()},
            "b.npy": {"bytes": 2, "sha256": hashlib.sha256(b"22").hexdigest()},
        },
    }
    write_manifest(tmp_path, {"source": "x"}, ["a.npy", "b.npy"])
    assert (tmp_path / "manifest.json").read_text() == text


@pytest.mark.parametrize("text", ["[]", "{", json.dumps({"format": "another"})])
def test_another_format_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest.json is damaged or no manifest of 'tread-lab"):
        read_manifest(tmp_path)
