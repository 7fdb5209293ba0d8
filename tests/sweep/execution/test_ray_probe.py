"""Slots of a cluster: all nodes together, but no device is shared by the runs of another node."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tread_lab.specs import UserError
from tread_lab.sweep.execution.executors import Share
from tread_lab.sweep.plan.devices import DeviceFacts

FACTS = DeviceFacts("cpu", "x", ("fp32",), 2**30)


def node(name: str, cpus: float, gpus: float = 0, *, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus}
    return {"NodeID": name, "NodeManagerHostname": name, "Alive": alive, "Resources": resources}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The probe of a cluster of a large node, a small one, and one that has left it."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    nodes = [node("large", 4, 2), node("small", 2), node("gone", 64, alive=False)]
    monkeypatch.setattr(ray_probe, "cluster", nullcontext)
    monkeypatch.setattr(ray_probe, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_probe, "_ask", lambda node, device: [FACTS])
    return ray_probe


@pytest.mark.parametrize(
    ("share", "slots", "packed", "idle_gpus"),
    [
        (Share(), 6, 4, 2),
        (Share(concurrent=5), 5, 4, 2),
        (Share(concurrent=3), 3, 3, 2),
        (Share(cpus=3), 1, 1, 2),
        (Share(gpus=0.5), 4, 2, 0),
    ],
)
def test_runs_share_a_device_only_with_those_of_their_node(
    probe: Any, share: Share, slots: int, packed: int, idle_gpus: int
) -> None:
    devices = probe.cluster_devices(share)
    assert (devices.slots, devices.packed, devices.idle_gpus) == (slots, packed, idle_gpus)
    assert devices.kinds == (FACTS,) and devices.local is None


def test_a_share_that_no_node_has_is_refused_with_what_they_have(probe: Any) -> None:
    with pytest.raises(UserError, match=r"8 CPU cores .*: large \(large\) has 4 CPU cores and 2 G"):
        probe.cluster_devices(Share(cpus=8))
