"""Facts of the devices where runs will run, which need not be those of the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tread_lab.engine.device import memory, name, pick, precisions


@dataclass(frozen=True)
class DeviceFacts:
    """What one kind of device is and can do.

    Attributes:
        memory: bytes in all.
    """

    type: str
    name: str
    precisions: tuple[str, ...]
    memory: int

    @staticmethod
    def of(device: torch.device) -> DeviceFacts:
        """Ask a device of this process."""
        return DeviceFacts(device.type, name(device), precisions(device), memory(device))


@dataclass(frozen=True)
class Devices:
    """The devices where runs will run.

    Attributes:
        kinds: the distinct ones; a run may meet any of them.
        slots: how many runs go at once.
        packed: most runs that share one device.
        local: the one of this process that is like them; `None` if they are another machine's.
        idle_gpus: GPUs of a cluster of which runs get none.
    """

    kinds: tuple[DeviceFacts, ...]
    slots: int = 1
    packed: int = 1
    local: torch.device | None = None
    idle_gpus: int = 0

    @staticmethod
    def here(wanted: str | None = None, *, slots: int = 1, packed: int = 1) -> Devices:
        """Return the device `wanted` of this process, or its best one.

        Raises:
            UserError: it is not here.
        """
        device = pick(wanted)
        return Devices((DeviceFacts.of(device),), slots, packed, device)

    @property
    def type(self) -> str:
        return self.kinds[0].type

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
