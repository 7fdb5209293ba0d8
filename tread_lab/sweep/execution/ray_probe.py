"""Devices of a Ray cluster: asks the nodes that a run fits on what their devices can do."""

from __future__ import annotations

import os
import platform

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tread_lab.engine.device import model, pick, precisions
from tread_lab.specs.errors import Unavailable, UserError, first_line
from tread_lab.sweep.execution.executors import TrialResources
from tread_lab.sweep.execution.ray_cluster import Node, cluster, has, nodes, slots_on
from tread_lab.sweep.plan.devices import DeviceFacts, Devices

_PATIENCE = 120.0  # seconds for a worker to start and import torch


def cluster_devices(resources: TrialResources) -> Devices:
    """Return the devices of the nodes that a run fits on; one node of each kind is asked.

    Raises:
        UserError: no node has what a run is to get.
        Unavailable: a node offers GPUs that do not work, or does not answer.
    """
    with cluster():
        alive = nodes()
        slots = [slots_on(node, resources) for node in alive]
        fits = [node for node, count in zip(alive, slots) if count]
        if not fits:
            have = "; ".join(
                f"{_name(node)} has {has(node, 'CPU'):g} CPU cores and {has(node, 'GPU'):g} GPUs"
                for node in alive
            )
            cpus, gpus = resources.of_run.values()
            raise UserError(
                f"no node of the cluster has {cpus:g} CPU cores and {gpus:g} GPU"
                f" for a run: {have}; see --cpus and --gpus"
            )
        one_of_each = {
            (
                *sorted(n for n in node["Resources"] if n.startswith("accelerator_type:")),
                has(node, "CPU"),
                has(node, "GPU"),
            ): node
            for node in fits
        }.values()
        kinds = [facts for node in one_of_each for facts in _ask(node, resources.worker_device)]
    at_once, runs_per_device = resources.at_once(slots)
    return Devices(
        tuple(dict.fromkeys(kinds)),
        slots=at_once,
        runs_per_device=runs_per_device,
        threads=resources.cpus,
        per_run=resources.devices,
    )


def take(device: str) -> torch.device:
    """Return the device of this worker, in which no other one is visible from now on.

    Raises:
        Unavailable: it was promised a GPU, and none works; names the node.
    """
    if not device.startswith("cuda"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides no GPU from a worker that has none
        return pick(device)
    try:
        gpu = pick(device)
        torch.zeros(1, device=gpu)
        return gpu
    except (UserError, RuntimeError, AssertionError) as error:
        node = f"{platform.node()} ({ray.get_runtime_context().get_node_id()[:12]})"
        raise _broken_gpu(node, error) from error


def _broken_gpu(node: str, error: Exception) -> Unavailable:
    """Return the one line about a node whose GPUs do not work."""
    return Unavailable(
        f"node {node} offers GPUs to Ray, and CUDA does not work there"
        f" ({first_line(error)}); mend or remove it, then run the same command again"
    )


def _ask(node: Node, device: str) -> list[DeviceFacts]:
    """Return the facts of a node's devices.

    Raises:
        UserError: the node lacks the device.
        Unavailable: its GPUs do not work, or it does not answer.
    """
    # A process of its own, because that keeps memory of the GPU that it asks.
    task = ray.remote(num_cpus=0, max_calls=1, max_retries=0)(_facts)
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    answer = task.options(scheduling_strategy=there).remote(device)
    try:
        facts: list[DeviceFacts] = ray.get(answer, timeout=_PATIENCE)
        return facts
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if isinstance(error.cause, Exception) else error
        if not device.startswith("cuda"):
            raise cause from error
        raise _broken_gpu(_name(node), cause) from error
    except ray.exceptions.RayError as error:
        raise Unavailable(
            f"node {_name(node)} does not answer ({first_line(error)}); mend or remove it, then run"
            " the same command again"
        ) from error


def _facts(device: str) -> list[DeviceFacts]:
    """Return the facts of the devices of this type on the node of this process."""
    if not device.startswith("cuda"):
        return [_of(pick(device))]
    if not os.environ.get("CUDA_VISIBLE_DEVICES", "all"):
        del os.environ["CUDA_VISIBLE_DEVICES"]  # Ray may hide GPUs from a task that reserves none
    pick("cuda")
    return [_of(torch.device("cuda", n)) for n in range(torch.cuda.device_count())]


def _of(device: torch.device) -> DeviceFacts:
    return DeviceFacts(device.type, model(device), precisions(device))


def _name(node: Node) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeID'][:12]})"
