"""Facts of the devices where runs will run, which need not be those of the driver."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch

from tread_lab.engine.device import (
    memory,
    model,
    name,
    pick,
    precisions,
)
from tread_lab.specs.errors import UserError


@dataclass(frozen=True)
class DeviceFacts:
    """What one kind of device is and can do."""

    type: str
    name: str
    precisions: tuple[str, ...]
    memory: int  # bytes in all
    model: str = ""  # of the GPU or the processor, by which speeds compare

    @staticmethod
    def of(device: torch.device) -> DeviceFacts:
        """Ask a device of this process."""
        return DeviceFacts(
            device.type, name(device), precisions(device), memory(device), model(device)
        )

    @staticmethod
    def from_afar(device: torch.device) -> DeviceFacts:
        """Ask a device in a process of its own, which alone has a context there.

        Raises:
            UserError: it does not answer.
        """
        words = [sys.executable, "-m", "tread_lab.sweep.plan.devices", str(device)]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if answer.returncode:
            last = (answer.stderr.strip().splitlines() or ["no word"])[-1]
            raise UserError(f"{device} does not answer ({last}); try --device cpu")
        kind, called, computes, *rest = json.loads(answer.stdout)
        return DeviceFacts(kind, called, tuple(computes), *rest)


@dataclass(frozen=True)
class Devices:
    """The devices where runs will run.

    Attributes:
        kinds: the distinct ones; a run may meet any of them.
        slots: how many runs go at once.
        runs_per_device: most runs that share one device.
        threads: of each run on a CPU.
        idle_gpus: GPUs of a cluster of which runs get none.
        per_run: devices that train one run together.
    """

    kinds: tuple[DeviceFacts, ...]
    slots: int = 1
    runs_per_device: int = 1
    threads: int = 1
    idle_gpus: int = 0
    per_run: int = 1

    @staticmethod
    def here(
        wanted: str | None = None, *, slots: int = 1, runs_per_device: int = 1, threads: int = 1
    ) -> Devices:
        """Return the device `wanted` of this machine, or its best one.

        A GPU is asked from afar: this process need not be the one that will use it.

        Raises:
            UserError: it is not here.
        """
        device = pick(wanted)
        ask = DeviceFacts.of if device.type == "cpu" else DeviceFacts.from_afar
        return Devices((ask(device),), slots, runs_per_device, threads)

    @property
    def type(self) -> str:
        return self.kinds[0].type

    @property
    def share(self) -> float:
        """Devices of each run, a part of a GPU where several have it; on a CPU each has its own
        cores."""
        return self.per_run / (self.runs_per_device if self.type == "cuda" else 1)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those that every kind computes in."""
        first, *others = (kind.precisions for kind in self.kinds)
        return tuple(p for p in first if all(p in other for other in others))

    @property
    def memory(self) -> int:
        """Bytes of the smallest kind."""
        return min(kind.memory for kind in self.kinds)

    def names(self) -> dict[str, Any]:
        """Return what a sweep's `where` may ask: `precision in device.precisions`."""
        return {"device": {"type": self.type, "precisions": list(self.precisions)}}


if __name__ == "__main__":  # `from_afar` asks this process
    print(json.dumps(dataclasses.astuple(DeviceFacts.of(torch.device(sys.argv[1])))))
