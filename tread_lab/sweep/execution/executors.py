"""What each run gets of a machine, and the table of executors that give it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tread_lab.hardware import gpus, usable_cpus
from tread_lab.specs.errors import UserError

if TYPE_CHECKING:  # the command line lists the names at once
    from tread_lab.sweep.execution.early_stopping import EarlyStopping
    from tread_lab.sweep.execution.executor import Executor
    from tread_lab.sweep.plan.devices import Devices


@dataclass(frozen=True)
class TrialResources:
    """CPUs, GPUs and device of a run.

    Attributes:
        device: as the user named it; `None` for a GPU if runs have a share of one, else the CPU.
        cpus: of each of its processes.
        processes: on CPUs, that train a run together; on GPUs there is one for each.
        concurrent: most runs at once.
    """

    device: str | None = None
    cpus: int = 1
    gpus: float = 0.0
    concurrent: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        named = (self.device or "").partition(":")[0]
        if self.gpus and named not in ("", "cuda"):
            raise UserError(f"--device {self.device}: has no use for --gpus {self.gpus:g}")
        if not self.gpus and named == "cuda":
            raise UserError(f"--device {self.device}: needs a GPU, and --gpus is 0")
        if self.gpus > 1 and self.gpus % 1:
            raise UserError(f"--gpus: {self.gpus:g} for a run; several are whole ones, such as 2")
        if self.gpus > 1 and self.device not in (None, "cuda"):
            raise UserError(
                f"--device {self.device}: --gpus {self.gpus:g} takes the first GPUs; leave one out"
            )
        if self.gpus and self.processes > 1:
            raise UserError("--processes: on CPUs, say --device cpu; --gpus says how many GPUs")

    @property
    def devices(self) -> int:
        """How many devices train a run together, each with a process of its own."""
        return max(int(self.gpus), self.processes)

    @property
    def of_run(self) -> dict[str, float]:
        """What Ray gives a run."""
        return {"cpu": self.cpus * self.devices, "gpu": self.gpus}

    @property
    def worker_device(self) -> str:
        """The device of a worker, which sees its own GPUs alone: a GPU only if a run has one."""
        return "cuda" if self.gpus else self.device or "cpu"

    @property
    def device_here(self) -> str:
        """The same as it is called where all GPUs of this machine are seen."""
        return self.device or self.worker_device

    def slots(self, cpus: float, gpus: float) -> int:
        """Return how many runs fit at once on a machine with so many CPUs and GPUs.

        A share of a GPU lies on one GPU; a run of several has whole ones.
        """
        on_cpus = int(cpus // (self.cpus * self.devices))
        if not self.gpus:
            return on_cpus
        on_gpus = int(gpus) // math.ceil(self.gpus) * self.runs_per_device(1)
        return min(on_cpus, on_gpus)

    def runs_per_device(self, slots: int) -> int:
        """Return how many runs share one device, if `slots` of them go on one machine."""
        return max(1, int(1 / self.gpus)) if self.gpus else slots

    def at_once(self, slots: Sequence[int]) -> tuple[int, int]:
        """Return how many runs go at once on nodes that hold so many each, and most on a device."""
        total = min(sum(slots), self.concurrent or sum(slots))
        return total, min(total, self.runs_per_device(max(slots)))


@dataclass(frozen=True, kw_only=True)
class ExecutorKind:
    """What belongs to one executor.

    Attributes:
        make: makes the executor from the resources of a run, the seconds of `--hang-timeout`,
            early stopping.
        devices: returns the devices where its runs will run.
        side_by_side: whether several runs go at once, which early stopping needs.
    """

    make: Callable[[TrialResources, float | None, EarlyStopping | None], Executor]
    devices: Callable[[TrialResources], Devices]
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
        device=resources.device_here,
        threads=resources.cpus,
        hang_timeout=hang,
        processes=OneProcess() if count == 1 else HereProcesses(count),
    )


def cpus_here() -> int:
    """Return the whole CPUs that runs on this machine may use, of which the machine may have more.

    Ray is told of as many: by itself it counts all, or what it takes for the limits of a container.
    """
    return max(1, int(usable_cpus()))


def _ray_devices(resources: TrialResources) -> Devices:
    """Return the devices of the cluster at RAY_ADDRESS, else of this machine.

    Raises:
        UserError: a run is to have more than there is.
        Unavailable: the cluster does not answer.
    """
    if os.environ.get("RAY_ADDRESS"):
        from tread_lab.sweep.execution.ray_probe import cluster_devices

        return cluster_devices(resources)
    cpus, here = cpus_here(), _gpus_here(resources)
    if (wanted := resources.of_run["cpu"]) > cpus:
        raise UserError(f"--cpus: {wanted:g} for a run, and this machine has {cpus}")
    slots, runs_per_device = resources.at_once([resources.slots(cpus, here)])
    return _devices_here(resources, slots=slots, runs_per_device=runs_per_device)


def _inline_devices(resources: TrialResources) -> Devices:
    _gpus_here(resources)
    return _devices_here(resources)


def _gpus_here(resources: TrialResources) -> int:
    """Return the GPUs of this machine, 0 where a run gets none; refuse more for a run."""
    found = len(gpus()) if resources.gpus else 0
    if resources.gpus and resources.device and not found:
        raise UserError(f"--device {resources.device}: this machine has no GPU that CUDA can use")
    if resources.gpus > found:
        raise UserError(f"--gpus: {resources.gpus:g} for a run, and this machine has {found}")
    return found


def _devices_here(resources: TrialResources, **at_once: int) -> Devices:
    from tread_lab.sweep.plan.devices import Devices

    here = Devices.here(resources.device_here, threads=resources.cpus, **at_once)
    return replace(here, per_run=resources.devices)


EXECUTORS: Mapping[str, ExecutorKind] = {
    "ray": ExecutorKind(make=_ray, devices=_ray_devices, side_by_side=True),
    "inline": ExecutorKind(make=_inline, devices=_inline_devices, side_by_side=False),
}
