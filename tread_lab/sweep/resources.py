"""What each run gets of a machine or cluster, and the runner that gives it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tread_lab.config.errors import UserError
from tread_lab.hardware import Devices, gpus, usable_cpus

if TYPE_CHECKING:
    from tread_lab.sweep.runner import Runner


@dataclass(frozen=True)
class RunResources:
    """CPUs, GPUs and device of a run.

    Attributes:
        device: as the user named it; `None` for a GPU if runs have a share of one, else the CPU.
        cpus: of each of its processes.
        gpus: whole ones, or a share of one as Ray schedules it; memory is not divided.
        concurrent: most runs at the same time.
        processes: on CPUs, that train a run together; on GPUs there is one for each.
    """

    device: str | None = None
    cpus: int = 1
    gpus: float = 0.0
    concurrent: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        named = (self.device or "").partition(":")[0]
        if bool(self.gpus) != (named == "cuda") and named:
            raise UserError(f"--gpus: must fit --device {self.device}, got {self.gpus:g}")
        if self.gpus > 1 and (self.gpus % 1 or self.device not in (None, "cuda")):
            raise UserError(
                "--gpus: must be a share of one GPU (at most 1) or whole GPUs of --device cuda,"
                f" got {self.gpus:g} of {self.device or 'cuda'}. Try --gpus"
                f" {math.ceil(self.gpus)} --device cuda."
            )
        if self.gpus and self.processes > 1:
            raise UserError(
                f"--processes: must be 1 with GPUs, got {self.processes}. Try --gpus"
                f" {self.processes}, or --device cpu."
            )

    @property
    def devices(self) -> int:
        """How many devices train a run together, each with a process of its own."""
        return max(int(self.gpus), self.processes)

    @property
    def cores(self) -> int:
        """CPU cores of a run."""
        return self.cpus * self.devices

    @property
    def worker_device(self) -> str:
        """The device of a worker, which sees its own GPUs alone: a GPU only if a run has one."""
        return "cuda" if self.gpus else self.device or "cpu"

    def slots(self, cpus: float, gpus: float) -> int:
        """Return how many runs fit at once on a machine with so many CPUs and GPUs."""
        fits = [cpus // self.cores]
        if self.gpus:
            fits.append(int(gpus) // math.ceil(self.gpus) * max(1, int(1 / self.gpus)))
        return int(min(fits))

    def on(self, devices: Devices, slots: int) -> Devices:
        """Return devices with what runs get of them, `slots` at once."""
        shared = max(1, int(1 / self.gpus)) if self.gpus else slots
        at_once = min(slots, self.concurrent or slots)
        return replace(
            devices,
            slots=at_once,
            runs_per_device=min(at_once, shared),
            threads=self.cpus,
            per_run=self.devices,
        )


def make_runner(
    executor: str,
    resources: RunResources,
    *,
    runs_per_device: int = 1,
    hang_timeout: float | None = None,
) -> Runner:
    """Return the runner `ray` or `inline`."""
    from tread_lab.sweep.run_task import WorkerInfo
    from tread_lab.sweep.runner import InlineRunner
    from tread_lab.train.ranks import Processes

    worker = WorkerInfo(
        processes=Processes(resources.devices),
        hang_timeout=hang_timeout,
        runs_per_device=runs_per_device,
    )
    if executor == "inline":
        device = resources.device or resources.worker_device
        return InlineRunner(device=device, threads=resources.cpus, worker=worker)
    from tread_lab.sweep.ray_runner import RayRunner

    return RayRunner(resources, worker)


def devices_of(executor: str, resources: RunResources) -> Devices:
    """Return the devices where the runs of an executor will run.

    Raises:
        UserError: a run is to have more than there is.
        Unavailable: the cluster at RAY_ADDRESS does not answer.
    """
    if executor == "ray" and os.environ.get("RAY_ADDRESS"):
        from tread_lab.sweep.ray_runner import cluster_devices

        return cluster_devices(resources)
    found = len(gpus()) if resources.gpus else 0
    if resources.gpus > found:
        raise UserError(f"--gpus: must be at most {found} on this machine, got {resources.gpus:g}")
    slots = resources.slots(cpus_here(), found) if executor == "ray" else 1
    if not slots:
        raise UserError(f"--cpus: must be at most {cpus_here()} here, got {resources.cores}")
    here = Devices.here(resources.device or resources.worker_device)
    return resources.on(here, slots)


def cpus_here() -> int:
    """Return the whole CPUs that runs on this machine may use, of which the machine may have more.

    Ray is given as many: by itself it counts all, or what it takes for the limits of a container.
    """
    return max(1, int(usable_cpus()))
