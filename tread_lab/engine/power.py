"""Power, energy and use of a GPU while a run trains: NVML, sampled by a side thread."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tread_lab.engine.device import CONTEXT
from tread_lab.records.metric_names import ENERGY, POWER, USE

_EVERY = 1.0  # seconds between two samples


@dataclass(frozen=True)
class Reading:
    """What a device reports at one moment.

    Attributes:
        watts: drawn now.
        use: share of the last second or so in which it computed, from 0 to 1.
        joules: of its counter, which starts anywhere; `None` where it has none.
        shared: whether another process computes on it too.
    """

    watts: float
    use: float
    joules: float | None = None
    shared: bool = False


class NvmlReader:
    """One GPU by NVML, whose module is `pynvml` (the package nvidia-ml-py).

    Raises:
        Exception: `nvml.NVMLError` where the driver, the GPU or a permission is missing.
    """

    def __init__(self, nvml: Any, uuid: str) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        self.handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self._joules()
        self._read()

    def read(self) -> Reading | None:
        """Return what the device reports, `None` if it reports nothing any more."""
        try:
            return self._read()
        except self.nvml.NVMLError:
            return None

    def _read(self) -> Reading:
        nvml, handle = self.nvml, self.handle
        watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
        use = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
        return Reading(watts, use, self._joules(), self._shared())

    def _joules(self) -> float | None:
        """Return the counter, which GPUs before Volta lack."""
        try:
            return float(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1e3
        except self.nvml.NVMLError_NotSupported:
            return None

    def _shared(self) -> bool:
        """Return whether another process has more on the GPU than a bare context.

        In a container this process may be listed under a number that it does not know.
        """
        listed = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        large = [p for p in listed if (p.usedGpuMemory or 0) > CONTEXT]
        if any(p.pid == os.getpid() for p in listed):
            return any(p.pid != os.getpid() for p in large)
        return len(large) > 1


def open_meter(device: torch.device) -> Meter | None:
    """Return a meter of a device, `None` where nothing reports: a CPU, no NVML, no permission."""
    if device.type != "cuda":
        return None
    try:
        import pynvml as nvml
    except ImportError:
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    try:
        return Meter(NvmlReader(nvml, uuid).read)
    except nvml.NVMLError:
        return None


class Meter:
    """Energy of a run over all attempts that its state descends from, as its training time is.

    What was drawn after a checkpoint that a later attempt starts from does not count: those steps
    are trained again. Once the device is shared, or unread in any attempt, the energy of the run is
    unknown and stays so.

    Args:
        read: asks the device; `None` if it reports nothing any more.
        every: seconds between two samples; 0 for none but those at log entries.
        clock: seconds.
    """

    def __init__(
        self,
        read: Callable[[], Reading | None],
        *,
        every: float = _EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._every, self._clock = read, every, clock
        self._joules: float | None = 0.0
        self._last: tuple[float, Reading] | None = None
        self._window: list[Reading] = []
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._sample, name="power", daemon=True)

    def begin(self, joules: str | None = "0") -> None:
        """Start to measure, with what earlier attempts drew; `None` if that is not known."""
        self._joules = None if joules is None else float(joules)
        self._note()
        if self._every:
            self._thread.start()

    @property
    def joules(self) -> float | None:
        """The energy up to now, `None` where it is not known."""
        self._note()
        return self._joules

    def values(self) -> dict[str, float]:
        """Return energy so far, and mean power and use since the last call, where known."""
        self._note()
        with self._lock:
            window, self._window = self._window, []
            if self._joules is None:
                return {}
            power = statistics.fmean(reading.watts for reading in window)
            use = statistics.fmean(reading.use for reading in window)
            return {ENERGY: self._joules, POWER: power, USE: use}

    def close(self) -> None:
        """End the side thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(self._every):
            self._note()

    def _note(self) -> None:
        """Add what was drawn since the last sample: of the counter, else power times time."""
        with self._lock:
            if self._joules is None:
                return
            now, reading = self._clock(), self._read()
            if reading is None or reading.shared:
                self._joules = None
                return
            if self._last is not None:
                drawn = _drawn(*self._last, now, reading)
                self._joules = None if drawn < 0 else self._joules + drawn
            self._last = (now, reading)
            self._window.append(reading)


def _drawn(then: float, before: Reading, now: float, after: Reading) -> float:
    """Return the joules between two readings, below zero if the counter was reset."""
    if before.joules is not None and after.joules is not None:
        return after.joules - before.joules
    return (now - then) * (before.watts + after.watts) / 2
