"""Claims about SPRINT in a spec: what is written out, and where."""

from __future__ import annotations

from typing import Any

from tread_lab.config import RunSpec, decode
from tread_lab.methods.sprint.spec import SprintBypass


def test_dense_path_drop_needs_dense_steps() -> None:
    def written(until: float | None, **fields: Any) -> float | None:
        tree: dict[str, Any] = {"model": "DiT-6x32x2/2", "routes": ["2->3"], "routes_until": until}
        run = decode(RunSpec, {**tree, "bypass": {"kind": "sprint", **fields}})
        return SprintBypass.of(run).dense_path_drop

    assert written(0.5) == 0.1 and written(None) is None
    assert written(0.5, dense_path_drop=0.0) == 0.0
    assert written(0.5, path_drop=0.0) is None
    assert written(0.5, path_drop=0.0, dense_path_drop=0.2) == 0.2
    assert written(None, dense_path_drop=0.2) is None
