"""What each run of a sweep gets of a machine, and how many go at once on one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.specs.errors import UserError


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
        """The device of a worker: a GPU only if a run has one."""
        return "cuda" if self.gpus else self.device or "cpu"

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
