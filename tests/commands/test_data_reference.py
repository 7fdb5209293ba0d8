"""The data reference command hands on its options, and says what the file holds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.commands import data_reference
from tread_lab.metrics import extraction


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the command asks for, of 1234 images of 10 classes at side 64; nothing is measured."""
    asked: list[Any] = []
    done = SimpleNamespace(damaged=0)
    images = SimpleNamespace(names=range(1234), classes=range(10))

    def open_real(*what: Any) -> Any:
        asked.append(what)
        return images, 64

    def write(real: Any, side: int, out: Path, network: Any, **how: Any) -> str:
        asked.append((real is images, side, out.name, network, how))
        out.write_bytes(bytes(3000))
        return "steps"

    name = data_reference.__name__
    monkeypatch.setattr(f"{name}.check_torch_fidelity", lambda what: asked.append(what))
    monkeypatch.setattr(f"{name}.inception_weights", lambda: asked.append("weights"))
    monkeypatch.setattr(f"{name}.open_real", open_real)
    monkeypatch.setattr(f"{name}.write_reference", write)
    monkeypatch.setattr(f"{name}.show_steps", lambda *what: asked.append(what) or done)
    monkeypatch.setattr(f"{name}.pick", lambda device: f"picked {device}")
    monkeypatch.setattr(extraction, "Extraction", lambda space, *, device: (space, device))
    return asked


@pytest.mark.parametrize(
    ("workers", "cores", "used", "keep", "kept"),
    [(7, 12, 7, 100, 100), (None, 12, 12, 5000, 1234), (None, None, 1, 5000, 1234)],
)
def test_options_reach_the_reference_and_it_is_said_what_was_kept(
    workers: int | None,
    cores: int | None,
    used: int,
    keep: int,
    kept: int,
    calls: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(data_reference.os, "cpu_count", lambda: cores)
    out = tmp_path / "r.npz"
    how: dict[str, Any] = {"images": Path("in"), "out": out, "size": 32, "limit": 5, "batch": 9,
                           "keep": keep, "device": "cpu", "workers": workers,
                           "skip_damaged": False}  # fmt: skip
    assert data_reference.run(**how, as_json=False) == 0
    options = {"keep": keep, "batch": 9, "workers": used, "skip_damaged": False}
    network = (data_reference.INCEPTION, "picked cpu")
    assert calls == [
        "data reference", "weights", (Path("in"), 32, 5),
        (True, 64, "r.npz", network, options), ("steps", "images"),
    ]  # fmt: skip
    assert capsys.readouterr() == (
        f"{out}: statistics of 1,234 images 64x64, and {kept:,} of them, 3 kB\nreference: {out}\n",
        "1,234 images of 10 classes in in\n",
    )
    assert data_reference.run(**how, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(out), "images": 1234, "stored": kept, "damaged": 0, "size": 64,
        "sha256": "c81ca5eda5947c7826ad046fdbdc2a25a846b835a6c34c237cc8b3afbe9ec6cc",
    }  # fmt: skip
