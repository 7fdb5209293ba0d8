"""The table of executors: how each is made, and which devices it uses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tread_lab.specs.errors import UserError
from tread_lab.sweep.execution.resources import TrialResources

if TYPE_CHECKING:  # the command line lists the names at once
    from tread_lab.sweep.execution.early_stopping import EarlyStopping
    from tread_lab.sweep.execution.executor import Executor
    from tread_lab.sweep.plan.devices import Devices


@dataclass(frozen=True, kw_only=True)
class ExecutorKind:
    """What belongs to one executor.

    Attributes:
        make: makes the executor from the resources of a run, the seconds of `--hang-timeout`,
            early stopping.
        devices: returns the devices where its runs will run.
        start_seconds: predicted time until the first run starts.
        side_by_side: whether several runs go at once, which early stopping needs.
    """

    make: Callable[[TrialResources, float | None, EarlyStopping | None], Executor]
    devices: Callable[[TrialResources], Devices]
    start_seconds: float
    side_by_side: bool


def _ray(resources: TrialResources, hang: float | None, early: EarlyStopping | None) -> Executor:
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    return RayExecutor(resources, hang_timeout=hang, early=early)


def _inline(resources: TrialResources, hang: float | None, early: EarlyStopping | None) -> Executor:
    from tread_lab.engine.ranks import HereProcesses, OneProcess
    from tread_lab.sweep.execution.executor import InlineExecutor

    assert early is None
    count = resources.devices
    return InlineExecutor(
        device=resources.device,
        threads=resources.cpus,
        hang_timeout=hang,
        processes=OneProcess() if count == 1 else HereProcesses(count, resources.cpus),
    )


def _ray_devices(resources: TrialResources) -> Devices:
    """Return the devices of the cluster at RAY_ADDRESS, else of this machine.

    Raises:
        UserError: a run is to have more than there is.
        Unavailable: the cluster does not answer.
    """
    if "RAY_ADDRESS" in os.environ:
        from tread_lab.sweep.execution.ray_probe import cluster_devices

        return cluster_devices(resources)
    import torch

    from tread_lab.sweep.plan.devices import Devices

    cpus, gpus = os.cpu_count() or 1, torch.cuda.device_count() if resources.gpus else 0
    if resources.gpus and resources.device and not gpus:
        raise UserError(f"--device {resources.device}: this machine has no GPU that torch can use")
    wanted_cpus, wanted_gpus = resources.of_run.values()
    for what, wanted, present in (("cpus", wanted_cpus, cpus), ("gpus", wanted_gpus, gpus)):
        if wanted > present:
            raise UserError(f"--{what}: {wanted:g} for a run, and this machine has {present}")
    slots, runs_per_device = resources.at_once([resources.slots(cpus, gpus)])
    here = Devices.here(
        resources.worker_device,
        slots=slots,
        runs_per_device=runs_per_device,
        threads=resources.cpus,
    )
    return replace(here, per_run=resources.devices)


def _inline_devices(resources: TrialResources) -> Devices:
    from tread_lab.sweep.plan.devices import Devices

    here = Devices.here(resources.device, threads=resources.cpus)
    return replace(here, per_run=resources.devices)


EXECUTORS: Mapping[str, ExecutorKind] = {
    "ray": ExecutorKind(make=_ray, devices=_ray_devices, start_seconds=10.0, side_by_side=True),
    "inline": ExecutorKind(
        make=_inline, devices=_inline_devices, start_seconds=0.5, side_by_side=False
    ),
}
