"""The weights of an encoder are named by both ends of their files, their sizes and their names."""

from __future__ import annotations

from pathlib import Path

from tread_lab.engine.encoder import weights_digest

MIDDLE = bytes(3 * 2**20)  # longer than both ends together


def digest(folder: Path, name: str, content: bytes) -> str:
    folder.mkdir()
    (folder / name).write_bytes(content)
    (folder / "config.json").write_text(folder.name)  # no weights
    return weights_digest(folder)


def test_another_end_size_or_name_is_another_digest(tmp_path: Path) -> None:
    name, other = "model.safetensors", "model-1.safetensors"
    first = digest(tmp_path / "first", name, b"a" + MIDDLE + b"z")
    assert len(first) == 16
    assert digest(tmp_path / "same", name, b"a" + MIDDLE + b"z") == first
    changed = [
        digest(tmp_path / "begin", name, b"b" + MIDDLE + b"z"),
        digest(tmp_path / "end", name, b"a" + MIDDLE + b"y"),
        digest(tmp_path / "size", name, b"a" + MIDDLE + b"\0z"),
        digest(tmp_path / "name", other, b"a" + MIDDLE + b"z"),
    ]
    assert len({first, *changed}) == 5
