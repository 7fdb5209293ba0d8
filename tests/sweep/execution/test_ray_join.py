"""A batch job waits for its nodes, and says which number came when they do not."""

from __future__ import annotations

import pytest

from tests.tracking.test_store import free_port
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution import ray_join
from tread_lab.sweep.execution.ray_join import alive_nodes, wait_for_nodes


def test_nodes_join_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_join, "_PAUSE", 0.0)
    joined = iter([0, 1, 2, 3])
    wait_for_nodes(3, 100, lambda: next(joined))
    assert next(joined, None) is None
    with pytest.raises(Unavailable, match=r"^2 of 3 nodes have joined .* within 0 s"):
        wait_for_nodes(3, 0, lambda: 2)


def test_a_head_that_is_not_there_has_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_join, "_PAUSE", 0.0)
    assert alive_nodes(f"127.0.0.1:{free_port()}") == 0
