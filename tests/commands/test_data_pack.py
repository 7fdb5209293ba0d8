"""The data pack command packs what the folder holds, or what it is told that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands import data_pack


@pytest.mark.parametrize(("source", "packed"), [("dc-ae", "dc-ae"), (None, "found in in")])
def test_latents_are_packed_and_shown(
    source: str | None, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(data_pack, "source_of", lambda path: f"found in {path}")
    monkeypatch.setattr(data_pack, "pack", lambda *what, **how: (what, how))
    monkeypatch.setattr(data_pack, "show_steps", lambda *what: calls.append(what))
    monkeypatch.setattr(data_pack, "read_manifest", lambda out: f"manifest of {out}")
    monkeypatch.setattr(data_pack, "show_packed", lambda *what, **how: calls.append((what, how)))
    how: Any = {"path": Path("in"), "out": Path("out"), "source": source, "batch": 3}
    assert data_pack.run(**how, as_json=True) == 0
    assert calls == [
        (((packed, Path("in"), Path("out")), {"batch": 3}), "samples"),
        ((Path("out"), "manifest of out"), {"as_json": True}),
    ]
