"""The dashboard command serves the lab at the address that is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tread_lab.commands import dashboard


def test_the_lab_is_served_where_it_is_named_also_before_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(dashboard, "serve", lambda lab, **how: calls.append((lab.root, how)))
    assert dashboard.run(root=str(tmp_path / "absent"), host="h", port=7) == 0
    how = {"host": "h", "port": 7, "say": dashboard.say}
    assert calls == [(tmp_path / "absent", how)]
