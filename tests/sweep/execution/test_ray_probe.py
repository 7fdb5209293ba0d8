"""Slots of a cluster: all nodes together, but no device is shared by the runs of another node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tread_lab.specs import RunSpec, UserError, encode
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution.resources import TrialResources
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
    monkeypatch.setattr(ray_probe.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_probe, "_ask", lambda node, device: [FACTS])
    return ray_probe


@pytest.mark.parametrize(
    ("resources", "slots", "runs_per_device", "idle_gpus"),
    [
        (TrialResources(), 6, 4, 2),
        (TrialResources(concurrent=5), 5, 4, 2),
        (TrialResources(concurrent=3), 3, 3, 2),
        (TrialResources(cpus=3), 1, 1, 2),
        (TrialResources(gpus=0.5), 4, 2, 0),
    ],
)
def test_runs_share_a_device_only_with_those_of_their_node(
    probe: Any, resources: TrialResources, slots: int, runs_per_device: int, idle_gpus: int
) -> None:
    devices = probe.cluster_devices(resources)
    assert (devices.slots, devices.runs_per_device, devices.idle_gpus) == (
        slots,
        runs_per_device,
        idle_gpus,
    )
    assert devices.kinds == (FACTS,) and devices.local is None


def test_a_share_that_no_node_has_is_refused_with_what_they_have(probe: Any) -> None:
    with pytest.raises(UserError, match=r"8 CPU cores .*: large \(large\) has 4 CPU cores and 2 G"):
        probe.cluster_devices(TrialResources(cpus=8))


def test_nodes_with_equal_devices_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    asked: list[str] = []
    nodes = [node("a", 4, 2), node("b", 4, 2), node("c", 4, 1), node("d", 8, 2), node("e", 4, 2)]
    nodes[4]["Resources"]["accelerator_type:H100"] = 1.0
    nodes[3]["Resources"]["memory"] = 5.0

    def ask(node: Any, device: str) -> list[DeviceFacts]:
        asked.append(node["NodeID"] + device)
        return [DeviceFacts(device, node["NodeID"] if len(asked) > 2 else "same", ("fp32",), 1)]

    monkeypatch.setattr(ray_probe, "cluster", nullcontext)
    monkeypatch.setattr(ray_probe.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_probe, "_ask", ask)
    devices = ray_probe.cluster_devices(TrialResources(gpus=1))
    assert asked == ["bcuda", "ccuda", "dcuda", "ecuda"]
    assert [kind.name for kind in devices.kinds] == ["same", "d", "e"]
    assert (devices.slots, devices.runs_per_device) == (2 + 2 + 1 + 2 + 2, 1)


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
    """A probe whose node fails so."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    def get(answer: Any, timeout: float) -> Any:
        assert timeout == 120.0
        raise error

    def remote(**options: Any) -> Any:
        assert options == {"num_cpus": 0, "max_calls": 1, "max_retries": 0}
        made = SimpleNamespace(remote=lambda device: None)
        return lambda function: SimpleNamespace(options=lambda scheduling_strategy: made)

    monkeypatch.setattr(ray_probe.ray, "remote", remote)
    monkeypatch.setattr(ray_probe.ray, "get", get)
    return ray_probe


def test_a_node_that_fails_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    broken = {**node("ab" * 28, 4), "NodeManagerHostname": "host"}
    mistake = UserError("no device named x")
    told = ray.exceptions.RayTaskError("f", "trace", mistake)
    with pytest.raises(UserError, match=r"^no device named x$"):
        failing(monkeypatch, told)._ask(broken, "cpu")
    with pytest.raises(
        Unavailable, match=r"^node host \(abababababab\) offers GPUs .* \(no device named x\); mend"
    ):
        failing(monkeypatch, told)._ask(broken, "cuda")
    lost = ray.exceptions.GetTimeoutError("too late")
    with pytest.raises(
        Unavailable, match=r"^node host \(abababababab\) does not answer \(too late"
    ):
        failing(monkeypatch, lost)._ask(broken, "cpu")


def test_a_node_tells_of_each_gpu_and_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(ray_probe, "pick", torch.device)
    monkeypatch.setattr(DeviceFacts, "of", staticmethod(str))
    for hidden, left in (("", None), ("3", "3"), (None, None)):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if hidden is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert ray_probe._facts("cpu") == ["cpu"]
        assert ray_probe._facts("cuda") == ["cuda:0", "cuda:1"]
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


def test_a_cluster_times_runs_on_a_node_that_has_room_for_one(
    probe: Any, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def remote(**options: Any) -> Any:
        asked.append(options)
        return lambda function: SimpleNamespace(remote=lambda *a: asked.append((function, *a)))

    def get(answer: Any, timeout: float) -> Any:
        assert timeout == 120.0
        if len(asked) > 2:
            raise probe.ray.exceptions.GetTimeoutError("too late")
        return ["speed"]

    monkeypatch.setattr(probe.ray, "remote", remote)
    monkeypatch.setattr(probe.ray, "get", get)
    monkeypatch.setattr(probe.ray, "cancel", lambda answer, force: asked.append(force))
    devices = probe.cluster_devices(TrialResources(cpus=2))
    assert (devices.threads, devices.runs_per_device) == (2, 2)
    assert devices.time([tiny()], at_once=1) == ["speed"]
    assert asked == [
        {"num_cpus": 2, "num_gpus": 0.0, "max_calls": 1, "max_retries": 0},
        (probe._time, [encode(tiny())], "cpu", 2, 2),
    ]
    assert devices.time([tiny()], at_once=1) is None and asked[-1] is True


def test_a_node_times_as_many_runs_at_once_as_share_its_device(
    probe: Any, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "take", lambda device: f"taken {device}")
    monkeypatch.setattr(probe, "calibrate", lambda *given, **more: (given, more))
    found = probe._time([encode(tiny())], "cpu", 4, 3)
    assert found == (([tiny()], "taken cpu"), {"slots": 4, "threads": 3})


def test_the_cluster_is_asked_while_it_is_there(
    probe: Any, tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    within, nodes = list[bool](), probe.nodes

    @contextmanager
    def cluster() -> Iterator[None]:
        within.append(True)
        yield
        within.pop()

    def asked(result: Any) -> Any:
        assert within == [True]
        return result

    monkeypatch.setattr(probe, "cluster", cluster)
    monkeypatch.setattr(probe, "nodes", lambda: asked(nodes()))
    monkeypatch.setattr(probe, "_ask", lambda node, device: asked([FACTS]))
    made = SimpleNamespace(remote=lambda *_: asked("answer"))
    monkeypatch.setattr(probe.ray, "remote", lambda **_: lambda function: made)
    monkeypatch.setattr(probe.ray, "get", lambda answer, timeout: asked([answer]))
    devices = probe.cluster_devices(TrialResources())
    assert devices.time([tiny()], at_once=1) == ["answer"] and within == []
    assert isinstance(devices.idle_gpus, int)


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize(
    "error", [UserError("broken"), AssertionError("broken"), RuntimeError("broken\nmore")]
)
def test_a_gpu_is_tried_before_a_run_is_given_it(
    device: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    tried: list[Any] = []

    def zeros(*sizes: int, device: Any = None) -> None:
        tried.append((sizes, device))
        if len(tried) > 1:
            raise error

    context = SimpleNamespace(get_node_id=lambda: "ab" * 28)
    monkeypatch.setattr(ray_probe.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_probe.platform, "node", lambda: "host")
    monkeypatch.setattr(ray_probe, "pick", torch.device)
    monkeypatch.setattr(torch, "zeros", zeros)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert ray_probe.take(device) == torch.device(device)
    assert tried == [((1,), torch.device(device))]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    with pytest.raises(Unavailable, match=r"^node host \(abababababab\) .*there \(broken\)"):
        ray_probe.take(device)


def test_a_node_is_asked_itself_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    there, given = "ab" * 28, list[Any]()
    probe = failing(monkeypatch, ray.exceptions.RayTaskError("f", "trace", "killed"))
    made = SimpleNamespace(remote=given.append)

    def options(scheduling_strategy: Any) -> Any:
        given.append((scheduling_strategy.node_id, scheduling_strategy.soft))
        return made

    monkeypatch.setattr(
        probe.ray, "remote", lambda **_: lambda function: SimpleNamespace(options=options)
    )
    with pytest.raises(ray.exceptions.RayTaskError):  # its cause is no exception
        probe._ask(node(there, 4), "cpu")
    assert given == [(there, False), "cpu"]
    with pytest.raises(Unavailable, match="offers GPUs"):
        probe._ask(node(there, 4), "cuda:1")
