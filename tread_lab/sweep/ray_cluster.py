"""The Ray cluster of a driver: started here or joined, watched, its nodes and its processes."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tread_lab.records.attempts import Attempt
from tread_lab.spec.errors import Unavailable, first_line
from tread_lab.sweep.garbage import SCRATCH
from tread_lab.sweep.lifeline import Address, leave, lifeline


@contextmanager
def cluster() -> Iterator[None]:
    """Ray for the block: the cluster at RAY_ADDRESS, else workers of this machine."""
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    # Ray's sockets need a short path, so this is not below the lab.
    scratch = None if address else tempfile.mkdtemp(prefix=SCRATCH, dir="/tmp")
    local: dict[str, Any] = {} if address else {"include_dashboard": False, "_temp_dir": scratch}
    try:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
        except (ConnectionError, RuntimeError) as error:
            raise _no_ray(address, error) from error
        with lifeline(_addresses(), _cluster_lost):
            yield
    finally:
        ray.shutdown()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _no_ray(address: str | None, error: Exception) -> Unavailable:
    """The one line a cluster that does not start or does not let us in becomes."""
    reason = first_line(error.__cause__ or error)[:200]
    if address is None:
        remedy = "`--executor inline` needs no Ray; or try again when the machine is less busy"
        return Unavailable(f"Ray did not start on this machine: {reason}; {remedy}")
    remedy = "is it there, and does it want RAY_AUTH_MODE=token?"
    return Unavailable(f"cannot join the Ray cluster at {address}: {reason}; {remedy}")


def _addresses() -> list[Address]:
    """Where the cluster's head and this machine's own daemon answer."""
    here = ray.get_runtime_context()
    head, port = here.gcs_address.rsplit(":", 1)
    own = [node for node in _nodes() if node["NodeID"] == here.get_node_id()]
    daemons = [(node["NodeManagerAddress"], int(node["NodeManagerPort"])) for node in own]
    return [(head, int(port)), *daemons]


def _cluster_lost(message: str) -> None:
    """Take along what is left of a cluster that this process has started, and leave."""
    started: Any = ray._private.worker._global_node
    if started is not None:
        with contextlib.suppress(Exception):
            started.kill_all_processes(check_alive=False, allow_graceful=False)
    leave(message)


def end_attempt(attempt: Attempt) -> None:
    """Kill the process of an attempt on whatever node it runs; nobody waits for it."""
    if attempt.node == ray.get_runtime_context().get_node_id():
        _kill(attempt.pid)
        return
    there = NodeAffinitySchedulingStrategy(attempt.node, soft=False)
    task = ray.remote(num_cpus=0)(_kill)
    task.options(scheduling_strategy=there).remote(attempt.pid)


def _kill(pid: int) -> None:
    """Kill a worker of Ray, and nobody who has its number now."""
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
        if title.startswith(b"ray::"):
            os.kill(pid, signal.SIGKILL)
    except OSError:
        return


def alive_nodes() -> frozenset[str]:
    """The nodes that are in the cluster now."""
    return frozenset(node["NodeID"] for node in _nodes() if node["Alive"])


def whole_device(share: dict[str, float]) -> dict[str, float]:
    """Resources that leave no room for another run: whole GPUs, or all cores of a node."""
    if share["gpu"]:
        return {**share, "gpu": math.ceil(share["gpu"])}
    cores = [node["Resources"].get("CPU", 0) for node in _nodes() if node["Alive"]]
    return {**share, "cpu": max(cores, default=share["cpu"])}


def _nodes() -> list[dict[str, Any]]:
    return list(ray.nodes())  # type: ignore[no-untyped-call]
