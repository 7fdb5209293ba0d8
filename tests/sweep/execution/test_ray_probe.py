"""Slots of a cluster: all nodes together, but no device is shared by the runs of another node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tread_lab.specs import UserError
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.plan.devices import DeviceFacts

FACTS = DeviceFacts("cpu", "x", ("fp32",))


def node(name: str, cpus: float, gpus: float = 0, *, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus}
    return {"NodeID": name, "NodeManagerHostname": name, "Alive": alive, "Resources": resources}


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The probe of a cluster of a large node, a small one, and one that has left it."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    nodes = [node("small", 2), node("large", 4, 2), node("gone", 64, alive=False)]
    there: list[bool] = []

    @contextmanager
    def cluster() -> Iterator[None]:
        there.append(True)
        yield
        there.clear()

    def nodes_now() -> Any:
        assert there  # it is asked while it is there
        return nodes

    monkeypatch.setattr(ray_probe, "cluster", cluster)
    monkeypatch.setattr(ray_probe.ray, "nodes", nodes_now)
    return ray_probe


@pytest.fixture
def answering(probe: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The probe of nodes that tell of one CPU each."""
    monkeypatch.setattr(probe, "_ask", lambda node, device: [FACTS])
    return probe


@pytest.mark.parametrize(
    ("resources", "slots", "runs_per_device"),
    [
        (TrialResources(), 6, 4),
        (TrialResources(concurrent=5), 5, 4),
        (TrialResources(concurrent=3), 3, 3),
        (TrialResources(cpus=3), 1, 1),
        (TrialResources(gpus=0.5), 4, 2),
    ],
)
def test_runs_share_a_device_only_with_those_of_their_node(
    answering: Any, resources: TrialResources, slots: int, runs_per_device: int
) -> None:
    devices = answering.cluster_devices(resources)
    assert (devices.slots, devices.runs_per_device) == (slots, runs_per_device)
    assert devices.kinds == (FACTS,)


def test_a_share_that_no_node_has_is_refused_with_what_they_have(probe: Any) -> None:
    with pytest.raises(UserError, match=r"8 CPU cores .*; large \(large\) has 4 CPU cores and 2 G"):
        probe.cluster_devices(TrialResources(cpus=8))


def test_nodes_with_equal_devices_are_asked_once(
    probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    nodes = [node("a", 4, 2), node("b", 4, 2), node("c", 4, 1), node("d", 8, 2), node("e", 4, 2)]
    nodes[4]["Resources"]["accelerator_type:H100"] = 1.0
    nodes[3]["Resources"]["memory"] = 5.0

    def ask(node: Any, device: str) -> list[DeviceFacts]:
        asked.append(node["NodeID"] + device)
        return [DeviceFacts(device, node["NodeID"] if len(asked) > 2 else "same", ("fp32",))]

    monkeypatch.setattr(probe.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(probe, "_ask", ask)
    devices = probe.cluster_devices(TrialResources(gpus=1))
    assert asked == ["bcuda", "ccuda", "dcuda", "ecuda"]
    assert [kind.name for kind in devices.kinds] == ["same", "d", "e"]
    assert (devices.slots, devices.runs_per_device) == (2 + 2 + 1 + 2 + 2, 1)


@pytest.fixture
def asked(probe: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Ray is asked of a node: where, and of which device."""
    calls: list[Any] = []

    def options(scheduling_strategy: Any) -> Any:
        calls.append((scheduling_strategy.node_id, scheduling_strategy.soft))
        return SimpleNamespace(remote=calls.append)

    def remote(**how: Any) -> Any:
        assert how == {"num_cpus": 0, "max_calls": 1, "max_retries": 0}
        return lambda function: SimpleNamespace(options=options)

    monkeypatch.setattr(probe.ray, "remote", remote)
    return calls


@pytest.mark.parametrize(
    ("kind", "given", "device", "raised", "said"),
    [
        ("RayTaskError", ("f", "trace", UserError("no x")), "cpu", UserError, "^no x$"),
        (
            "RayTaskError",
            ("f", "trace", UserError("no x")),
            "cuda",
            Unavailable,
            r"^node host \(abababababab\) offers GPUs .* \(no x\); mend",
        ),
        ("RayTaskError", ("f", "trace", "no exception"), "cuda:1", Unavailable, "offers GPUs"),
        (
            "GetTimeoutError",
            ("too late\nat 9",),
            "cpu",
            Unavailable,
            r"^node host \(abababababab\) does not answer \(too late\); mend",
        ),
    ],
)
def test_a_node_is_asked_itself_and_one_that_fails_is_named_in_one_line(
    probe: Any,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    given: tuple[Any, ...],
    device: str,
    raised: type[Exception] | None,
    said: str,
) -> None:
    error = getattr(probe.ray.exceptions, kind)(*given)

    def get(answer: Any, timeout: float) -> Any:
        assert timeout == 120.0
        raise error

    monkeypatch.setattr(probe.ray, "get", get)
    broken = {**node("ab" * 28, 4), "NodeManagerHostname": "host"}
    with pytest.raises(raised or type(error), match=said):
        probe._ask(broken, device)
    assert asked == [("ab" * 28, False), device]


def test_a_node_tells_of_each_gpu_and_one_cpu(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(probe, "pick", torch.device)
    monkeypatch.setattr(probe, "_of", str)
    for hidden, left in (("", None), ("3", "3"), (None, None)):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if hidden is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert probe._facts("cpu") == ["cpu"]
        assert probe._facts("cuda") == ["cuda:0", "cuda:1"]
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


@pytest.mark.parametrize(
    "error", [UserError("broken"), AssertionError("broken"), RuntimeError("broken\nmore")]
)
def test_a_gpu_is_tried_before_a_run_is_given_it(
    probe: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    def zeros(*sizes: int, device: Any = None) -> None:
        tried.append((sizes, device))
        if len(tried) > 1:
            raise error

    context = SimpleNamespace(get_node_id=lambda: "ab" * 28)
    monkeypatch.setattr(probe.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(probe.platform, "node", lambda: "host")
    monkeypatch.setattr(probe, "pick", torch.device)
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert probe.take("cuda:1") == torch.device("cuda:1")
    assert tried == [((1,), torch.device("cuda:1"))]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    with pytest.raises(Unavailable, match=r"^node host \(abababababab\) .*there \(broken\)"):
        probe.take("cuda:1")
