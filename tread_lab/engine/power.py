"""Energy, power and use of a GPU while a run trains: NVML's counter, read at log entries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from tread_lab.engine.device import CONTEXT
from tread_lab.records.metric_names import ENERGY, POWER, USE


def open_meter(device: torch.device) -> Meter | None:
    """Return a meter of a device; `None` where nothing counts: a CPU, no NVML, no permission."""
    if device.type != "cuda":
        return None
    try:
        import pynvml as nvml
    except ImportError:
        return None
    try:
        return Meter(nvml, f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except nvml.NVMLError:
        return None


class Meter:
    """Energy of a run over all attempts that its state descends from, as its training time is.

    What was drawn after a checkpoint that a later attempt starts from does not count: those steps
    are trained again. Once the counter was unread or reset, or another process computed on the GPU
    too, in any attempt, the energy of the run is unknown and stays so.

    Args:
        nvml: the module `pynvml` of the package nvidia-ml-py.
        clock: seconds.

    Raises:
        Exception: `nvml.NVMLError` where the driver, the GPU, a permission, or the counter is
            missing, which GPUs before Volta lack.
    """

    def __init__(
        self, nvml: Any, uuid: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        nvml.nvmlInit()
        self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
        self._clock = clock
        self._ask()
        self.begin()

    def begin(self, joules: str | None = "0") -> None:
        """Start to measure, with what earlier attempts drew; `None` if that is not known."""
        self._joules = None if joules is None else float(joules)
        self._last = self._read()
        self._logged = self._clock(), self._joules

    def energy(self) -> float | None:
        """Return the joules up to now, `None` where they are not known."""
        last, self._last = self._last, self._read()
        if self._joules is None or last is None or self._last is None or self._last < last:
            self._joules = None
        else:
            self._joules += self._last - last
        return self._joules

    def values(self) -> dict[str, float]:
        """Return energy so far, mean power since the last call, and use of late, where known."""
        then, before = self._logged
        self._logged = now, joules = self._clock(), self.energy()
        if joules is None or before is None:
            return {}
        return {ENERGY: joules, POWER: (joules - before) / (now - then), USE: self._use}

    def _ask(self) -> float:
        """Return the counter in joules, and keep the share of the last second in use."""
        nvml, handle = self._nvml, self._handle
        self._use = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3

    def _read(self) -> float | None:
        """Return the counter, `None` if it does not tell what this process alone draws."""
        try:
            return None if self._shared() else self._ask()
        except self._nvml.NVMLError:
            return None

    def _shared(self) -> bool:
        """Return whether another process has more on the GPU than a bare context.

        In a container this process may be listed under a number that it does not know.
        """
        listed = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        large = [p for p in listed if (p.usedGpuMemory or 0) > CONTEXT]
        if any(p.pid == os.getpid() for p in listed):
            return any(p.pid != os.getpid() for p in large)
        return len(large) > 1
