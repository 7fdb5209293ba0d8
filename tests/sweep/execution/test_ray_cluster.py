"""A driver without its cluster, and a cluster without its driver: neither stays behind."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.drivers import DONE, Driver, Zygote, eventually
from tread_lab.records.attempts import Attempt
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.errors import Unavailable
from tread_lab.sweep.execution.executor import InlineExecutor
from tread_lab.sweep.plan.storage import load_plan

PRELUDE = """
from tests.faults.tricks import without_extras
without_extras()
"""
SWEEP = """
experiment: tiny
fixed:
  model: {depth: 4, width: 16}
  train: {steps: %d, batch: 8}
  execution: {log_every: 5, checkpoint_every: 50}
axes: {route: {start: 0..0, end: 2..2}}
baseline: null
evaluate: [{heldout_loss: {images: 16, levels: 2}}]
"""
DAEMONS = ("gcs_server", "raylet")


def start(zygote: Zygote, folder: Path, *more: str) -> Driver:
    """A driver in a session of its own; it prints to `out` and `err`."""
    out, err = folder / "out", folder / "err"
    command = ("sweep", "one.yaml", "--no-mlflow", "--device=cpu", *more)
    return zygote.start(folder, *command, out=out, err=err, prelude=PRELUDE)


@contextmanager
def driving(zygote: Zygote, folder: Path, steps: int) -> Iterator[Driver]:
    """A driver whose only run is training."""
    pytest.importorskip("ray")
    (folder / "one.yaml").write_text(SWEEP % steps)
    logs = (folder / "lab").glob
    with ended(start(zygote, folder)) as driver:
        driver.until(lambda: any(logs("runs/*/log.jsonl")), 280)
        yield driver


@contextmanager
def ended(driver: Driver) -> Iterator[Driver]:
    """A driver that ends with the block, and with it all processes of its cluster."""
    try:
        yield driver
    finally:
        driver.kill()
        for pid in offspring(driver.pid):
            sigkill(pid)


def sigkill(pid: int) -> None:
    """Kill a process, unless the death of another has ended it already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def offspring(driver: int) -> dict[int, str]:
    """The processes of a driver's local cluster that live, by name; all are of its session."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
            name = (path / "cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            continue
        if int(session) == driver and state != "Z" and int(path.name) != driver:
            found[int(path.name)] = name.rpartition("/")[2].rstrip()
    return found


def working(driver: int) -> dict[int, str]:
    """Those that hold a device or train: Ray's idle agents take longer to notice."""
    return {pid: name for pid, name in offspring(driver).items() if not name.endswith("Agent")}


@pytest.fixture
def lost(tmp_path: Path, zygote: Zygote) -> RunFolder:
    """A run of which a worker was killed, then the cluster; `printed` is what its driver said."""
    lab = Lab(tmp_path / "lab")
    with driving(zygote, tmp_path, steps=300) as driver:
        (path,) = (tmp_path / "lab" / "runs").iterdir()
        run = lab.run(path.name)
        sigkill(run.attempts.read()[-1].pid)
        eventually(lambda: len(run.attempts.read()) == 2, 100)
        daemons = {pid: n for pid, n in offspring(driver.pid).items() if n in DAEMONS}
        assert set(daemons.values()) == set(DAEMONS)
        assert not [c for c in map(_command, offspring(driver.pid)) if b"monitor.py" in c]
        for pid in daemons:
            sigkill(pid)
        assert driver.wait(60) == 3, printed(tmp_path)
        eventually(lambda: not working(driver.pid), 30)
    assert driver.said() == ""
    # A killed process may be a zombie some milliseconds before the kernel frees its locks.
    eventually(lambda: run.state() == "interrupted", 5)
    return run


@pytest.mark.slow
@pytest.mark.fault(
    9,
    survived="the driver ends with one line and exit code 3; the trial is interrupted, not failed",
)
def test_a_killed_worker_is_replaced_and_a_lost_cluster_ends_the_driver_each_in_one_line(
    lost: RunFolder, tmp_path: Path
) -> None:
    screen = printed(tmp_path)
    killed, *more = (line for line in screen.splitlines() if "was killed" in line)
    assert killed.endswith("was killed; the run goes back to the queue, with 2 more of 3 tries")
    assert not more and "tread-lab: the Ray cluster is lost" in screen, screen
    assert "Traceback" not in screen and "ray." not in screen, screen
    assert [a.ended for a in lost.attempts.read()] == ["died", ""]  # which the next driver ends


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.fault(
    9,
    survived="the same command on a fresh cluster completes the trial from its last checkpoint,"
    " although one of its two processes there is killed",
)
def test_on_a_fresh_cluster_two_processes_complete_what_one_began(
    lost: RunFolder, tmp_path: Path, zygote: Zygote
) -> None:
    lab, calm, logged = Lab(tmp_path / "lab"), Lab(tmp_path / "calm"), len(lost.entries())
    with ended(start(zygote, tmp_path, "--processes=2")) as again:
        again.until(lambda: len(lost.entries()) > logged, 280)
        (other,) = (p for p, name in offspring(again.pid).items() if "_Following" in name)
        sigkill(other)
        tasks = load_plan(lab.sweep("one")).tasks
        InlineExecutor(device="cpu").run(calm, tasks, lambda report: None)
        assert again.wait(280) == DONE, printed(tmp_path)
    assert [(a.ended, a.devices) for a in lost.attempts.read()] == [
        ("died", 1),
        ("lost", 1),
        ("died", 2),
        ("completed", 2),
    ]
    found, expected = (
        [e.value for e in place.run(lost.name).entries() if e.key == "train/loss"]
        for place in (lab, calm)
    )
    # Steps multiply the rounding of a sum in two parts; 50 of them agree within 1e-6 elsewhere.
    assert found == pytest.approx(expected, rel=5e-5) and len(found) == 60


# name -> what is killed, once this is there in the lab
MOMENTS = {
    "the raylet as it starts": (b"raylet/raylet", "sweeps/*"),
    "the raylet before the first trial": (b"raylet/raylet", "ray/*"),
    "the raylet in the middle": (b"raylet/raylet", "runs/*/log.jsonl"),
    "the gcs in the middle": (b"gcs/gcs_server", "runs/*/log.jsonl"),
}


@pytest.mark.slow
@pytest.mark.fault(
    9,
    survived="one line and exit code 3 without a dump of Ray's, within a minute of the kill; no"
    " lock stays behind",
)
@pytest.mark.parametrize(
    "moment",
    [pytest.param(m, marks=pytest.mark.long) for m in MOMENTS],
)
def test_a_daemon_killed_at_any_moment_is_one_line(
    moment: str, tmp_path: Path, zygote: Zygote
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "one.yaml").write_text(SWEEP % 300)
    process, sign = MOMENTS[moment]
    with ended(start(zygote, tmp_path)) as driver:
        kill_at(driver, process, lambda: any((tmp_path / "lab").glob(sign)))
        assert driver.wait(60) == 3, printed(tmp_path)
        eventually(lambda: not working(driver.pid), 30)
    out, errors = driver.said(), printed(tmp_path)
    assert "Traceback" not in errors and "ERROR" not in errors and out == "", (out, errors)
    assert sum(line.startswith("tread-lab: ") for line in errors.splitlines()) == 1, errors
    assert len(errors.splitlines()) < 15, errors
    lab = Lab(tmp_path / "lab")
    runs = [lab.run(path.name) for path in lab.root.glob("runs/*")]
    # A killed process may be a zombie some milliseconds before the kernel frees its locks.
    eventually(lambda: {run.state() for run in runs} <= {"interrupted"}, 5)


def printed(folder: Path) -> str:
    """What a driver in this folder has printed to stderr so far."""
    return (folder / "err").read_text()


def kill_at(driver: Driver, process: bytes, moment: Callable[[], bool]) -> None:
    """SIGKILL a process of a driver's session, known by its command line, once it is time."""
    found: list[int] = []

    def seen() -> bool:
        found[:] = [pid for pid in offspring(driver.pid) if process in _command(pid)]
        return bool(found) and moment()

    driver.until(seen, 120)
    sigkill(found[0])


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_whose_driver_is_killed_ends_too(tmp_path: Path, zygote: Zygote) -> None:
    with driving(zygote, tmp_path, steps=100000) as driver:
        assert len(offspring(driver.pid)) >= 3
        driver.signal()
        eventually(lambda: not working(driver.pid), 30)


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
    context = SimpleNamespace(gcs_address="10.0.0.2:6379", get_node_id=lambda: "here")
    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_cluster.ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray_cluster, "GcsClient", lambda address: None)
    return ray_cluster


def test_the_head_and_the_daemon_of_this_node_are_watched(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module._addresses() == {("10.0.0.1", 7): 5.0, ("10.0.0.2", 6379): 30.0}
    assert module.alive_nodes() == {"here", "there"}
    context = SimpleNamespace(gcs_address="fe80::2:6379", get_node_id=lambda: "there")
    monkeypatch.setattr(module.ray, "get_runtime_context", lambda: context)
    assert module._addresses() == {("10.0.0.2", 8): 5.0, ("fe80::2", 6379): 30.0}


def test_an_attempt_is_ended_on_the_node_where_it_runs(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, there = list[Any](), "ab" * 28

    def remote(**resources: Any) -> Any:
        def of(function: Any) -> Any:
            def options(scheduling_strategy: Any) -> Any:
                node, soft = scheduling_strategy.node_id, scheduling_strategy.soft
                where = (node, soft, resources)
                return SimpleNamespace(remote=lambda pid: killed.append((pid, where)))

            return SimpleNamespace(options=options)

        return of

    monkeypatch.setattr(module, "_kill", lambda pid: killed.append(pid))
    monkeypatch.setattr(module.ray, "remote", remote)
    module.end_attempt(Attempt(n=1, pid=5, node="here"))
    module.end_attempt(Attempt(n=1, pid=6, node=there))
    assert killed == [5, (6, (there, False, {"num_cpus": 0}))]


def test_only_a_worker_of_ray_is_killed(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    module._kill(os.getpid())  # a process that has the number of a worker now
    module._kill(2**22 + 1)  # no process
    assert killed == []
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"ray::Worker.step\0")
    module._kill(77)
    assert killed == [(77, signal.SIGKILL)]


def test_the_end_of_a_daemon_is_named_and_that_of_others_is_not(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = [("dashboard", None)]
    node = SimpleNamespace(dead_processes=lambda: dead)
    monkeypatch.setattr(module.ray._private.worker, "_global_node", None)
    assert module._ended_daemon() == ""
    monkeypatch.setattr(module.ray._private.worker, "_global_node", node)
    assert module._ended_daemon() == ""
    dead.append(("gcs_server", None))
    assert module._ended_daemon() == "gcs_server"
    dead.insert(0, ("raylet", None))
    assert module._ended_daemon() == "raylet"


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
    monkeypatch.setattr(module, "_is_of_ray", lambda pid: pid == agent.pid)
    agent = subprocess.Popen(["sleep", "600"])
    try:
        module._shut_down()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert agent.wait(10) == -signal.SIGKILL
    assert heard == [signal.SIGTERM]
    assert killed == [{"check_alive": False, "allow_graceful": False}]


def test_a_cluster_in_use_is_neither_started_nor_ended(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(module.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(module.ray, "shutdown", lambda: ended.append(1))
    with module.cluster() as driver:
        assert not driver.stopping()
    assert ended == []


def test_a_cluster_of_this_machine_leaves_no_scratch_folder(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "shutdown", lambda: started.append("ended"))
    monkeypatch.setattr(module, "_init", lambda address, **more: started.append((address, more)))
    with module.cluster():
        ((address, options),) = started
        assert address is None and options["include_dashboard"] is False
        scratch = Path(options["_temp_dir"])
        assert scratch.parent == Path("/tmp") and scratch.name.startswith("tread-lab-")
        assert (scratch / ".tread-lab-scratch").is_file()
    assert started[1:] == ["ended"] and not scratch.exists()


def test_an_address_where_nothing_answers_is_one_line_and_is_not_joined(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(module.ray, "init", lambda **options: pytest.fail("joined"))
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(Unavailable, match=rf"nothing has answered at {address} \(RAY"):
            module.cluster().__enter__()


def test_a_cluster_that_wants_a_token_is_one_line_and_is_not_joined(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(address: str) -> None:
        raise module.ray.exceptions.AuthenticationError("RPC error: InvalidAuthToken")

    monkeypatch.setattr(module, "answers", lambda *asked, **more: True)
    monkeypatch.setattr(module, "GcsClient", refused)
    monkeypatch.setattr(module, "_init", lambda address: pytest.fail("joined"))
    said = r"10\.0\.0\.2:1 \(RAY_ADDRESS\) wants a token: export RAY_AUTH_MODE=token"
    with pytest.raises(Unavailable, match=said):
        module._joined("10.0.0.2:1", module.Driver()).__enter__()


@pytest.mark.parametrize("address", ["ray://head:10001", "local", "nonsense"])
def test_an_address_without_host_and_port_is_left_to_ray(
    module: Any, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(module, "answers", lambda *asked, **more: pytest.fail("asked"))
    module._refuse_silence(address)


def test_what_ray_prints_is_shown_except_the_dump_of_a_killed_raylet(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(module, "_print", lambda batch, **more: shown.append(batch["lines"]))
    module._print_but_dumps({"lines": ["a", "b"]}, flush=True)
    module._print_but_dumps({"lines": ["a", "Raylet is terminated. Termination"]})
    module._print_but_dumps({"lines": ["The node with node id: 1 has been marked dead"]})
    assert shown == [["a", "b"]]


def test_a_driver_leaves_with_its_message_and_the_last_thing_to_do(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Any] = []
    monkeypatch.setattr(module, "leave", lambda *what, **how: left.append((what, how)))
    module.Driver().leave("lost", print)
    module.Driver(lambda: True).leave("lost", print)
    stopped = "stopped; run the same command again to continue from the last checkpoints"
    assert left == [(("lost", print), {}), ((stopped, print), {"code": 130})]


@pytest.mark.parametrize(
    ("address", "head"),
    [("10.0.0.2:1", ("10.0.0.2", 1)), ("[fe80::1]:6379", ("fe80::1", 6379))],
)
def test_a_cluster_that_is_joined_is_watched_from_then_on(
    module: Any, monkeypatch: pytest.MonkeyPatch, address: str, head: Any
) -> None:
    calls: list[Any] = []

    @contextmanager
    def watched(addresses: Any, lost: Any) -> Iterator[None]:
        calls.append((addresses, lost))
        yield
        calls.append("unwatched")

    monkeypatch.setattr(module.services, "canonicalize_bootstrap_address", lambda named: named)
    monkeypatch.setattr(module.ray, "shutdown", lambda: calls.append("left"))
    monkeypatch.setattr(module, "_init", lambda *what: calls.append(what))
    monkeypatch.setattr(module, "monitor_addresses", watched)
    monkeypatch.setattr(module, "answers", lambda where, **_: calls.append(where) or True)
    driver = module.Driver()
    with module._joined(address, driver):
        daemons = {("10.0.0.1", 7): 5.0, ("10.0.0.2", 6379): 30.0}
        assert calls == [head, (address,), (daemons, driver.leave)]
    assert calls[3:] == ["unwatched", "left"]


def test_the_daemons_of_a_cluster_of_this_machine_are_watched_before_it_starts(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    @contextmanager
    def watched(ended: Any, lost: Any) -> Iterator[None]:
        assert ended is module._ended_daemon
        calls.append("watched")
        lost("gone")
        yield

    monkeypatch.setattr(module, "new_scratch", lambda: tmp_path / "never made")
    monkeypatch.setattr(module.ray, "shutdown", lambda: calls.append("ended"))
    monkeypatch.setattr(module, "_init", lambda *what, **how: calls.append("started"))
    monkeypatch.setattr(module, "monitor_daemons", watched)
    driver = SimpleNamespace(leave=lambda *what: calls.append(what))
    with module._started(driver):
        assert calls == ["watched", ("gone", module._kill_daemons), "started"]
    assert calls[3:] == ["ended"]


def test_runs_are_packed_on_nodes_that_are_there(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tread_lab.sweep.execution.resources import TrialResources

    def of(alive: bool = True, **resources: float) -> dict[str, Any]:
        return {"Alive": alive, "Resources": resources}

    nodes = [of(CPU=4.0, GPU=1.0), of(CPU=2.0), of(memory=1.0), of(False, CPU=64.0, GPU=8.0)]
    monkeypatch.setattr(module.ray, "nodes", lambda: nodes)
    most = [module.most_on_one_device(TrialResources(gpus=gpus)) for gpus in (0.0, 0.25, 1.0)]
    assert most == [4, 4, 1]
    assert module.whole_device({"cpu": 1, "gpu": 0.0}) == {"cpu": 4.0, "gpu": 0.0}
    assert module.whole_device({"cpu": 2, "gpu": 1.5}) == {"cpu": 2, "gpu": 2}
    nodes[:] = [of(memory=1.0)]  # a head that runs nothing
    assert module.most_on_one_device(TrialResources()) == 0
    assert module.whole_device({"cpu": 1, "gpu": 0.0}) == {"cpu": 0, "gpu": 0.0}
    nodes[:] = [of(CPU=4.0)]
    assert module.most_on_one_device(TrialResources(gpus=0.5)) == 0
    nodes.clear()
    assert module.whole_device({"cpu": 3, "gpu": 0.0}) == {"cpu": 3, "gpu": 0.0}
