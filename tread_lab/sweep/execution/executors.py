"""The table of executors: how each is made, and which devices it uses."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tread_lab.specs.errors import UserError

if TYPE_CHECKING:  # the command line lists the names at once
    from tread_lab.sweep.execution.early_stopping import EarlyStopping
    from tread_lab.sweep.execution.executor import Executor
    from tread_lab.sweep.plan.devices import Devices


@dataclass(frozen=True)
class Share:
    """What each run gets of a machine.

    Attributes:
        device: as the user named it; `None` for a GPU if runs have a share of one, else the CPU.
        concurrent: most runs at once.
    """

    device: str | None = None
    cpus: int = 1
    gpus: float = 0.0
    concurrent: int | None = None

    def __post_init__(self) -> None:
        named = (self.device or "").partition(":")[0]
        if self.gpus and named not in ("", "cuda"):
            raise UserError(f"--device {self.device}: has no use for --gpus {self.gpus:g}")
        if not self.gpus and named == "cuda":
            raise UserError(f"--device {self.device}: needs a GPU, and --gpus is 0")

    @property
    def worker_device(self) -> str:
        """The device of a worker: a GPU only if the share has one."""
        return "cuda" if self.gpus else self.device or "cpu"

    def slots(self, cpus: float, gpus: float) -> int:
        """Return how many runs fit at once on a machine with so many CPUs and GPUs.

        A share of a GPU lies on one GPU; a run of several has whole ones.
        """
        on_cpus = int(cpus // self.cpus)
        if not self.gpus:
            return on_cpus
        on_gpus = int(gpus) // math.ceil(self.gpus) * self.packed(1)
        return min(on_cpus, on_gpus)

    def packed(self, slots: int) -> int:
        """Return how many runs share one device, if `slots` of them go on one machine."""
        return max(1, int(1 / self.gpus)) if self.gpus else slots

    def at_once(self, slots: Sequence[int]) -> tuple[int, int]:
        """Return how many runs go at once on nodes that hold so many each, and most on a device."""
        total = min(sum(slots), self.concurrent or sum(slots))
        return total, min(total, self.packed(max(slots)))


@dataclass(frozen=True, kw_only=True)
class ExecutorKind:
    """What belongs to one executor.

    Attributes:
        make: makes the executor from a share, the seconds of `--hang-timeout`, early stopping.
        devices: returns the devices where its runs will run.
        start_seconds: predicted time until the first run starts.
        side_by_side: whether several runs go at once, which early stopping needs.
    """

    make: Callable[[Share, float | None, EarlyStopping | None], Executor]
    devices: Callable[[Share], Devices]
    start_seconds: float
    side_by_side: bool


def _ray(share: Share, hang_timeout: float | None, early: EarlyStopping | None) -> Executor:
    from tread_lab.sweep.execution.ray_executor import RayExecutor

    return RayExecutor(share, hang_timeout=hang_timeout, early=early)


def _inline(share: Share, hang_timeout: float | None, early: EarlyStopping | None) -> Executor:
    from tread_lab.sweep.execution.executor import InlineExecutor

    assert early is None
    return InlineExecutor(device=share.device, threads=share.cpus, hang_timeout=hang_timeout)


def _ray_devices(share: Share) -> Devices:
    """Return the devices of the cluster at RAY_ADDRESS, else of this machine.

    Raises:
        UserError: a run is to have more than there is.
        Unavailable: the cluster does not answer.
    """
    if "RAY_ADDRESS" in os.environ:
        from tread_lab.sweep.execution.ray_probe import cluster_devices

        return cluster_devices(share)
    import torch

    from tread_lab.sweep.plan.devices import Devices

    cpus, gpus = os.cpu_count() or 1, torch.cuda.device_count() if share.gpus else 0
    if share.gpus and share.device and not gpus:
        raise UserError(f"--device {share.device}: this machine has no GPU that torch can use")
    for what, wanted, present in (("cpus", share.cpus, cpus), ("gpus", share.gpus, gpus)):
        if wanted > present:
            raise UserError(f"--{what}: {wanted:g} for a run, and this machine has {present}")
    slots, packed = share.at_once([share.slots(cpus, gpus)])
    return Devices.here(share.worker_device, slots=slots, packed=packed, threads=share.cpus)


def _inline_devices(share: Share) -> Devices:
    from tread_lab.sweep.plan.devices import Devices

    return Devices.here(share.device, threads=share.cpus)


EXECUTORS: Mapping[str, ExecutorKind] = {
    "ray": ExecutorKind(make=_ray, devices=_ray_devices, start_seconds=10.0, side_by_side=True),
    "inline": ExecutorKind(
        make=_inline, devices=_inline_devices, start_seconds=0.5, side_by_side=False
    ),
}
