"""The Ray cluster of a driver: started here or joined, watched, its nodes and its processes."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
from ray._private import services
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tread_lab.specs.errors import Unavailable, first_line
from tread_lab.sweep.execution.cluster_heartbeat import (
    OWN_PATIENCE,
    PATIENCE,
    Address,
    answers,
    command_line,
    descendants,
    kill,
    leave,
    monitor,
    monitor_addresses,
)
from tread_lab.sweep.execution.executors import TrialResources, cpus_here

Node = dict[str, Any]
_DAEMONS = ("raylet", "gcs_server")  # without which a cluster is lost
_LOOK = 0.1  # seconds between two looks at them
_JOINING = 600.0  # seconds in which all nodes of a batch job join
# Half of what a start costs, for nodes on demand, workers' output in the driver, and Ray's pages.
_UNUSED = ("start_monitor", "start_log_monitor", "start_api_server")


@contextmanager
def cluster() -> Iterator[None]:
    """Provide Ray within the block: the cluster at RAY_ADDRESS, else workers of this machine.

    This process ends with one line once the cluster is lost.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    with _joined(address) if address else _started():
        yield


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """Join a running cluster, and watch the addresses of its daemons.

    Raises:
        Unavailable: nothing answers at the address, the cluster lacks nodes of the batch job that
            starts it, or it cannot be joined.
    """
    # Once: a node that leaves later is not waited for.
    _wait_for_nodes(int(os.environ.pop("TREAD_LAB_NODES", 0)), address)
    _refuse_silence(address)
    try:
        _init(address)
        with monitor_addresses(_addresses(), leave):
            yield
    finally:
        _shut_down()


def _wait_for_nodes(count: int, address: str) -> None:
    """Wait until as many nodes have joined; `ray.init` gives up a head whose start is repeated.

    Raises:
        Unavailable: they were not all there in time; says how many were.
    """
    deadline = time.monotonic() + _JOINING
    while count and (joined := _joined_nodes(address)) < count:
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{joined} of {count} nodes have joined the Ray cluster within {_JOINING:g} s; the"
                " lines above say why"
            )
        time.sleep(1)


def _joined_nodes(address: str) -> int:
    """Return how many nodes are in the cluster at an address; 0 while it does not answer."""
    host, _, port = address.rpartition(":")
    if not answers((host, int(port)), within=1):  # the client would try for a minute
        return 0
    try:
        infos = GcsClient(address=address).get_all_node_info(timeout=5)
    except Exception:  # Ray raises many kinds while a head starts
        return 0
    return sum(info.state == 0 for info in infos.values())  # GcsNodeInfo.ALIVE


def _refuse_silence(address: str) -> None:
    """Look whether a head answers, and takes our token; `ray.init` would ask it for minutes."""
    try:
        named = str(services.canonicalize_bootstrap_address(address))
        host, _, port = named.rpartition(":")
        head = host.strip("[]"), int(port)
    except Exception:  # what names no host and port is for `ray.init` to judge
        return
    if not answers(head, within=PATIENCE):
        raise Unavailable(
            f"nothing has answered at {address} (RAY_ADDRESS) for {PATIENCE:.0f} s; start the"
            " cluster with `ray start --head`, or unset RAY_ADDRESS to run on this machine"
        )
    try:
        GcsClient(address=named)  # `ray.init` tries for half a minute
    except ray.exceptions.AuthenticationError as error:
        raise Unavailable(
            f"the Ray cluster at {address} (RAY_ADDRESS) wants a token: export RAY_AUTH_MODE=token,"
            " with the cluster's ~/.ray/auth_token in your home (`ray get-auth-token` shows it)"
        ) from error
    except Exception:  # anything else is for `ray.init` to judge
        return


@contextmanager
def _started() -> Iterator[None]:
    """Start a cluster on this machine, and watch its daemons, which are child processes."""
    # Ray's sockets need a short path, whatever TMPDIR says, so this is not below the lab.
    scratch = tempfile.mkdtemp(prefix="tread-lab-", dir="/tmp")
    try:
        with monitor(_lost_daemon, _LOOK, leave):
            with few_daemons():
                options = {"include_dashboard": False, "_temp_dir": scratch}
                _init(None, num_cpus=cpus_here(), **options)
            yield
    finally:
        _shut_down()
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def few_daemons() -> Iterator[None]:
    """Let Ray start a cluster of one machine without the daemons that no sweep there needs."""
    node: Any = ray._private.node.Node
    kept = {name: getattr(node, name) for name in _UNUSED if hasattr(node, name)}
    for name in kept:
        setattr(node, name, lambda *_, **__: None)
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(node, name, method)


def _init(address: str | None, **options: Any) -> None:
    """Call `ray.init`.

    Raises:
        Unavailable: it raised anything, bare `Exception` among it.
    """
    ray._private.worker.print_to_stdstream = _print_but_dumps
    ray._private.utils.set_sigterm_handler = lambda handler: None  # ours stay
    # What starts now never sees SIGTERM: Ray ends a driver without a word whose raylet went first.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:
        reason = first_line(error.__cause__ or error)[:200]
        raise Unavailable(
            f"Ray did not start on this machine: {reason}; `--executor inline` needs no Ray; or try"
            " again when the machine is less busy"
            if address is None
            else f"cannot join the Ray cluster at {address}: {reason}; is it there?"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _shut_down() -> None:
    """Call `ray.shutdown`; what Ray takes from SIGTERM in C comes back.

    A daemon's agents would look for half a minute whether it comes back, and workers that are
    still starting would find out later.
    """
    started = [pid for pid in descendants(os.getpid()) if _is_of_ray(pid)]
    node: Any = ray._private.worker._global_node
    if node is not None:  # its daemons do not hear SIGTERM
        end_daemons = node.kill_all_processes
        node.kill_all_processes = lambda **_: end_daemons(check_alive=False, allow_graceful=False)
    ray.shutdown()
    for pid in filter(_is_of_ray, started):
        kill(pid)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def _is_of_ray(pid: int) -> bool:
    """Return whether a process is a daemon of Ray's, an agent of one, or a worker."""
    line = command_line(pid)
    return line.startswith(b"ray::") or b"/ray/" in line


_print: Any = ray._private.worker.print_to_stdstream


# A raylet that was killed (60 lines); a node or worker that is lost, which `TrialWatcher` says.
_DUMPS = ("Raylet is terminated", "The node with node id", "A worker died or was killed")


def _print_but_dumps(batch: Mapping[str, Any], *arguments: Any, **options: Any) -> None:
    """Print what Ray says, except its dumps."""
    if not any(line.startswith(_DUMPS) for line in batch["lines"]):
        _print(batch, *arguments, **options)


def _addresses() -> dict[Address, float]:
    """Return where the head and this machine's own daemon answer, and how long to wait for each."""
    context = ray.get_runtime_context()
    head, port = context.gcs_address.rsplit(":", 1)
    daemons = {
        (node["NodeManagerAddress"], int(node["NodeManagerPort"])): OWN_PATIENCE
        for node in nodes()
        if node["NodeID"] == context.get_node_id()
    }
    return {**daemons, (head, int(port)): PATIENCE}


def _lost_daemon() -> str:
    """Return that a daemon of the cluster started here has ended; empty while all live."""
    node: Any = ray._private.worker._global_node
    if node is None:  # not started yet, or shut down
        return ""
    daemon = next((name for name, _ in node.dead_processes() if name in _DAEMONS), "")
    return daemon and (
        f"the Ray cluster is lost (its process {daemon} has ended); records and checkpoints"
        " are whole, run the same command again to continue"
    )


def alive_nodes() -> frozenset[str]:
    """Return the ids of the nodes that are in the cluster now."""
    return frozenset(node["NodeID"] for node in nodes())


def fitting_nodes(resources: TrialResources) -> frozenset[str]:
    """Return the ids of the nodes that have room for a run."""
    return frozenset(node["NodeID"] for node in nodes() if slots_on(node, resources))


def kill_on(node: str, pid: int) -> bool:
    """Kill a process of a node, which may be stopped; return whether the node was reached."""
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    task = ray.remote(num_cpus=0, max_retries=0)(kill).options(scheduling_strategy=there)
    try:
        ray.get(task.remote(pid), timeout=PATIENCE)
        return True
    except ray.exceptions.RayError:
        return False


def most_on_one_device(resources: TrialResources) -> int:
    """Return the most runs that share one device of the cluster."""
    return resources.at_once([slots_on(node, resources) for node in nodes()])[1]


def nodes() -> list[Node]:
    """Return the nodes that are in the cluster now."""
    return [node for node in ray.nodes() if node["Alive"]]


def slots_on(node: Node, resources: TrialResources) -> int:
    """Return how many runs fit on a node at once."""
    return resources.slots(has(node, "CPU"), has(node, "GPU"))


def has(node: Node, resource: str) -> float:
    """Return how much of a resource a node has."""
    return float(node["Resources"].get(resource, 0))
