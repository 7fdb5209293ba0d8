"""Figures that are saved without being rendered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures as empty files: rendering them takes most of the time."""

    def save(self: Figure, path: Any, **options: Any) -> None:
        path.write(b"") if hasattr(path, "write") else Path(path).write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", save)
