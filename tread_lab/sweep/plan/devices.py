"""Facts of the devices where runs will run, which need not be those of the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tread_lab.config.errors import UserError
from tread_lab.hardware import CPU, gpus, processor


@dataclass(frozen=True)
class DeviceFacts:
    """What one kind of device is and can do.

    Attributes:
        model: of the GPU or the processor, by which speeds compare.
    """

    type: str
    model: str
    precisions: tuple[str, ...]


@dataclass(frozen=True)
class Devices:
    """The devices where runs will run.

    Attributes:
        kinds: the distinct ones; a run may meet any of them.
        slots: how many runs go at once.
        runs_per_device: most runs that share one device.
        threads: of each run on a CPU.
        per_run: devices that train one run together.
    """

    kinds: tuple[DeviceFacts, ...]
    slots: int = 1
    runs_per_device: int = 1
    threads: int = 1
    per_run: int = 1

    @staticmethod
    def here(
        wanted: str | None = None, *, slots: int = 1, runs_per_device: int = 1, threads: int = 1
    ) -> Devices:
        """Return the device `wanted` of this machine, or its best one.

        Raises:
            UserError: it is not here.
        """
        return Devices((_facts(wanted),), slots, runs_per_device, threads)

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

    def names(self) -> dict[str, Any]:
        """Return what a sweep's `where` may ask: `precision in device.precisions`."""
        return {"device": {"type": self.type, "precisions": list(self.precisions)}}


def _facts(wanted: str | None) -> DeviceFacts:
    here = [] if wanted == "cpu" else gpus()
    kind, _, index = (wanted or ("cuda" if here else "cpu")).partition(":")
    if kind == "cpu":
        return DeviceFacts("cpu", processor(), CPU)
    if kind != "cuda" or not (index or "0").isdecimal():
        raise UserError(f"--device: must be cpu, cuda or cuda:N, got {wanted}. Try --device cpu.")
    if int(index or 0) >= len(here):
        found = f"{len(here)} CUDA devices are visible" if here else "no CUDA device is visible"
        raise UserError(f"--device {wanted}: {found}; try --device cpu")
    gpu = here[int(index or 0)]
    return DeviceFacts("cuda", gpu.model, gpu.precisions)


def check_precisions(precisions: Iterable[str], devices: Devices) -> None:
    """Refuse precisions that a kind of device lacks."""
    for precision in dict.fromkeys(precisions):
        for kind in devices.kinds:
            if precision not in kind.precisions:
                raise UserError(
                    f"precision: {kind.type} ({kind.model}) has no {precision}; choose one of"
                    f" {', '.join(devices.precisions)}; `where: precision in device.precisions`"
                    " leaves it out of a sweep"
                )
