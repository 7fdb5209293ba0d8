"""Joining, watching and ending a Ray cluster; Ray itself is replaced, its answers are given."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tread_lab.specs.errors import Unavailable


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The cluster's module, seen from node `here` at 10.0.0.1 of three nodes."""
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_cluster

    def at(name: str, address: str, port: int, *, alive: bool = True) -> dict[str, Any]:
        where = {"NodeManagerAddress": address, "NodeManagerPort": port}
        return {"NodeID": name, "Alive": alive, "Resources": {}, **where}

    nodes = [at("here", "10.0.0.1", 7), at("there", "10.0.0.2", 8), at("gone", "10.0.0.3", 9)]
    nodes[-1]["Alive"] = False
    context = SimpleNamespace(gcs_address="fe80::2:6379", get_node_id=lambda: "here")
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_cluster.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_cluster, "GcsClient", lambda address: None)
    return ray_cluster


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (None, "Ray did not start on this machine: no room"),
        ("10.0.0.2:1", "cannot join the Ray cluster at 10.0.0.2:1: no room"),
    ],
)
def test_a_cluster_that_cannot_be_had_is_one_short_line(
    module: Any, monkeypatch: pytest.MonkeyPatch, address: str | None, said: str
) -> None:
    """What Ray starts meanwhile prints nothing, and does not hear SIGTERM."""

    def masked() -> bool:
        return signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def init(**options: Any) -> None:
        quiet = {"log_to_driver": False, "logging_level": 40}
        assert options == {"address": address, **quiet} and masked()
        raise Exception("outer") from RuntimeError(f"no room{'z' * 300}\nmore")

    monkeypatch.setattr(module.ray, "init", init)
    monkeypatch.setattr(module.ray._private.worker, "print_to_stdstream", print)
    monkeypatch.setattr(module.ray._private.utils, "set_sigterm_handler", print)
    with pytest.raises(Unavailable) as lost:
        module._init(address)
    assert str(lost.value).startswith(said) and str(lost.value).count("z") == 200 - len("no room")
    assert module.ray._private.worker.print_to_stdstream is module._print_but_dumps
    assert not masked()


def test_ray_gives_back_sigterm_and_its_daemons_and_agents_are_killed_at_once(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    node = SimpleNamespace(kill_all_processes=lambda **how: killed.append(how))

    def shutdown() -> None:
        node.kill_all_processes(check_alive=False, allow_graceful=True)
        ctypes.CDLL(None).signal(signal.SIGTERM, None)  # in C, past Python

    heard: list[int] = []
    earlier = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    monkeypatch.setattr(module.ray._private.worker, "_global_node", node)
    monkeypatch.setattr(module.ray, "shutdown", shutdown)
    started = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    lines = dict(zip((one.pid for one in started), (b"/lib/ray/agent.py", b"ray::IDLE", b"sh")))
    monkeypatch.setattr(module, "command_line", lambda pid: lines.get(pid, b""))
    *of_ray, other = started
    try:
        module._shut_down()
        signal.raise_signal(signal.SIGTERM)
        assert [one.wait(10) for one in of_ray] == [-signal.SIGKILL] * 2 and other.poll() is None
    finally:
        signal.signal(signal.SIGTERM, earlier)
        other.kill()
        other.wait()
    assert heard == [signal.SIGTERM]
    assert killed == [{"check_alive": False, "allow_graceful": False}]


@pytest.mark.parametrize(
    ("address", "head"),
    [
        ("10.0.0.2:1", ("10.0.0.2", 1)),
        ("[fe80::1]:6379", ("fe80::1", 6379)),
        *((odd, None) for odd in ("ray://head:10001", "local", "nonsense")),  # for Ray to judge
    ],
)
@pytest.mark.parametrize(
    ("answers", "error", "said"),
    [
        (False, "", r"nothing has answered at \S+ \(RAY_ADDRESS\) for 30 s"),
        (
            True,
            "AuthenticationError",
            r"_ADDRESS\) wants a token: export RAY_AUTH_MODE=token",
        ),
        (True, "RpcError", "joined"),  # of another version
    ],
)
def test_a_cluster_that_is_silent_or_wants_a_token_is_one_line_and_is_not_joined(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    head: Any,
    answers: bool,
    error: str,
    said: str,
) -> None:
    asked: list[Any] = []

    def client(address: str) -> None:
        raise getattr(module.ray.exceptions, error)("of the head")

    def join(address: str) -> None:
        raise Unavailable(f"joined {address}")

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "shutdown", lambda: None)
    monkeypatch.setattr(module, "answers", lambda *at, **how: asked.append((*at, how)) or answers)
    monkeypatch.setattr(module, "GcsClient", client)
    monkeypatch.setattr(module, "_init", join)
    if head:  # no resolver of this machine is asked
        monkeypatch.setattr(module.services, "canonicalize_bootstrap_address", str)
    with pytest.raises(Unavailable, match=said if head else "joined"):
        module.cluster().__enter__()
    assert asked == ([(head, {"within": 30.0})] if head else [])


@pytest.fixture
def calls(module: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What becomes of a cluster, and of its driver when it is lost."""
    calls: list[Any] = []

    @contextmanager
    def watched(what: Any, *seconds_and_lost: Any) -> Iterator[None]:
        calls.append(what() if callable(what) else what)
        seconds_and_lost[-1]("gone")
        yield
        calls.append("unwatched")

    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "shutdown", lambda: calls.append("ended"))
    monkeypatch.setattr(module, "answers", lambda *_, **__: True)
    monkeypatch.setattr(module, "_init", lambda *what, **how: calls.append((*what, how)))
    monkeypatch.setattr(module, "_lost_daemon", lambda: "raylet")
    monkeypatch.setattr(module, "leave", lambda *what, **how: calls.append((*what, how)))
    monkeypatch.setattr(module, "monitor_addresses", watched)
    monkeypatch.setattr(module, "monitor", watched)
    return calls


def test_a_cluster_that_is_joined_is_watched_from_then_on(
    module: Any, monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    with module.cluster():
        assert module.alive_nodes() == {"here", "there"}
        daemons = {("10.0.0.1", 7): 5.0, ("fe80::2", 6379): 30.0}  # of this node, and the head
        assert calls == [("10.0.0.2:6379", {}), daemons, ("gone", {})]
    assert calls[3:] == ["unwatched", "ended"]


def test_the_nodes_of_a_batch_job_that_are_alive_are_waited_for_once(
    module: Any, monkeypatch: pytest.MonkeyPatch, calls: list[Any]
) -> None:
    def head(*states: int) -> Any:
        infos = {k: SimpleNamespace(state=state) for k, state in enumerate(states)}
        return SimpleNamespace(get_all_node_info=lambda timeout: infos)

    pauses, alive, dead = list[float](), 0, 1
    nodes = [head(alive, dead), head(alive, dead, alive), head(alive)]
    monkeypatch.setattr(module, "answers", lambda at, **how: at == ("fe80::1", 6379))
    clients = Mock(side_effect=[RuntimeError("the head starts"), *nodes])
    monkeypatch.setattr(module, "GcsClient", clients)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0, sleep=pauses.append))
    monkeypatch.setenv("RAY_ADDRESS", "fe80::1:6379")
    monkeypatch.setenv("TREAD_LAB_NODES", "2")
    for _ in range(2):
        with module.cluster():
            assert (pauses, clients.call_count) == ([1, 1], 3)
    monkeypatch.setattr(module, "_JOINING", -1)
    monkeypatch.setenv("TREAD_LAB_NODES", "2")
    with pytest.raises(Unavailable, match=r"^1 of 2 nodes have joined the Ray cluster within"):
        module.cluster().__enter__()
    assert module._joined_nodes("10.0.0.9:6379") == 0 and clients.call_count == 4


def test_a_cluster_of_this_machine_is_watched_before_it_starts_and_leaves_no_scratch_folder(
    module: Any, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.sweep.execution.executors.usable_cpus", lambda: 0.5)
    with module.cluster():
        watched, left, (address, options) = calls
        assert (watched, left, address) == ("raylet", ("gone", {}), None)
        assert (options["include_dashboard"], options["num_cpus"]) == (False, 1)
        scratch = Path(options["_temp_dir"])
        assert scratch.parent == Path("/tmp") and scratch.name.startswith("tread-lab-")
    assert calls[3:] == ["unwatched", "ended"] and not scratch.exists()


def test_runs_are_packed_on_nodes_that_are_there(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.sweep.execution.executors import TrialResources

    def of(alive: bool = True, **resources: float) -> dict[str, Any]:
        return {"Alive": alive, "Resources": resources}

    nodes = [of(CPU=4.0, GPU=1.0), of(CPU=2.0), of(memory=1.0), of(False, CPU=64.0, GPU=8.0)]
    monkeypatch.setattr(module.ray, "nodes", lambda: nodes)
    most = [module.most_on_one_device(TrialResources(gpus=gpus)) for gpus in (0.0, 0.25, 1.0)]
    assert most == [4, 4, 1]
    for name, node in zip("abcd", nodes):
        node["NodeID"] = name
    fitting = [module.fitting_nodes(TrialResources(cpus=2, gpus=gpu)) for gpu in (0.0, 1.0, 2.0)]
    assert fitting == [{"a", "b"}, {"a"}, set()]
    nodes[:] = [{**of(memory=1.0), "NodeID": "a"}]  # a head that runs nothing
    assert module.most_on_one_device(TrialResources()) == 0
    nodes[:] = [of(CPU=4.0)]
    assert module.most_on_one_device(TrialResources(gpus=0.5)) == 0
    nodes.clear()
