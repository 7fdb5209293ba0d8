"""A batch job waits for its nodes, and says which number came when they do not."""

from __future__ import annotations

import runpy
import sys
from unittest.mock import Mock

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


def test_of_the_nodes_that_a_head_knows_those_count_that_are_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Mock()
    client.return_value.get_all_node_info.return_value = {
        name: Mock(state=state) for name, state in (("a", 0), ("b", 1), ("c", 0))
    }
    monkeypatch.setattr(ray_join, "GcsClient", client)
    monkeypatch.setattr(ray_join, "answers", lambda address, within: address == ("fe80::1", 6379))
    assert alive_nodes("fe80::1:6379") == 2
    client.side_effect = RuntimeError("it starts")
    assert alive_nodes("fe80::1:6379") == 0


def test_a_job_whose_nodes_do_not_come_ends_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr(sys, "argv", ["ray_join", "2", "0.5"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(ray_join.__file__, run_name="__main__")
    line = capsys.readouterr().err
    assert line.startswith("tread-lab: 0 of 2 nodes have joined the Ray cluster within 0.5 s")
    assert end.value.code == 3 and line.count("\n") == 1
