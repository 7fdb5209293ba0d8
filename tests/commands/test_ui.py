"""The ui command syncs every sweep before it serves the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.synthetic import small, write_sweep
from tread_lab.commands import ui


def test_every_sweep_is_synced_and_then_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    for name in "ab":
        write_sweep(tmp_path, small(name=name))
    monkeypatch.setattr(ui, "sync_if_possible", lambda lab, name: calls.append((lab.root, name)))
    monkeypatch.setattr(ui, "ui", lambda lab, **how: calls.append((lab.root, how)))
    assert ui.run(root=str(tmp_path), host="h", port=7) == 0
    assert calls == [(tmp_path, "a"), (tmp_path, "b"), (tmp_path, {"host": "h", "port": 7})]
