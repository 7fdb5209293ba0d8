"""Energy of a run by a recorded NVML: all attempts once, and nothing where it would be wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tread_lab.engine.power import Meter, NvmlReader, Reading, open_meter
from tread_lab.engine.train import train
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs import RunSpec

CPU = torch.device("cpu")


class NVMLError(Exception):
    pass


class NotSupported(NVMLError):
    pass


class Nvml:
    """What an H100 told once: 350 W, three quarters busy, a counter in millijoules."""

    NVMLError, NVMLError_NotSupported = NVMLError, NotSupported

    def __init__(self, *, counter: bool = True, processes: Any = (), denied: bool = False) -> None:
        self.counter, self.processes, self.denied = counter, list(processes), denied
        self.millijoules, self.asked, self.lost = 5_000_000, "", False

    def nvmlInit(self) -> None:
        if self.denied:
            raise NVMLError("Insufficient Permissions")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked = uuid
        return "handle"

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if self.lost:
            raise NVMLError("GPU is lost")
        return 350_000

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=75, memory=30)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if not self.counter:
            raise NotSupported
        return self.millijoules

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return self.processes


def process(pid: int, gigabytes: float | None) -> SimpleNamespace:
    size = None if gigabytes is None else int(gigabytes * 1e9)
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


def test_nvml_is_read_in_watts_shares_and_joules() -> None:
    assert NvmlReader(Nvml(), "GPU-1").read() == Reading(350.0, 0.75, 5000.0, False)
    reader = NvmlReader(nvml := Nvml(counter=False), "GPU-1")
    assert reader.read() == Reading(350.0, 0.75, None, False)
    nvml.lost = True
    assert reader.read() is None


@pytest.mark.parametrize(
    ("processes", "shared"),
    [
        ([], False),
        ([process(os.getpid(), 40)], False),
        ([process(os.getpid(), 40), process(1, 0.5)], False),  # a bare context
        ([process(os.getpid(), 0.6), process(1, 3)], True),
        ([process(77, 40)], False),  # this process by its number outside the container
        ([process(77, 40), process(78, 3)], True),
        ([process(os.getpid(), None), process(78, None)], False),
    ],
)
def test_another_process_shares_the_gpu(processes: list[Any], shared: bool) -> None:
    reading = NvmlReader(Nvml(processes=processes), "GPU-1").read()
    assert reading is not None and reading.shared == shared


def test_a_gpu_is_found_by_its_uuid_and_no_permission_is_no_meter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, nvml = torch.device("cuda", 0), Nvml()
    properties = SimpleNamespace(uuid="4d2c")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_meter(gpu) is not None and nvml.asked == "GPU-4d2c"
    assert open_meter(CPU) is None
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(denied=True))
    assert open_meter(gpu) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    assert open_meter(gpu) is None


def meter(*readings: Reading | None, seconds: tuple[float, ...] = ()) -> Meter:
    """A meter of given readings; the last one stays."""
    told, ticks = iter(readings), iter(seconds)
    return Meter(lambda: next(told, readings[-1]), every=0, clock=lambda: next(ticks, 0.0))


def test_energy_is_the_difference_of_the_counter() -> None:
    one = meter(*(Reading(300.0 + k, 0.5, 100.0 * k) for k in range(1, 4)))
    one.begin()
    assert one.values() == {
        "energy/joules": 100.0,
        "power/watts": 301.5,
        "gpu/utilisation": 0.5,
    }
    assert (one.values()["power/watts"], one.joules) == (303.0, 200.0)


def test_without_a_counter_it_is_power_times_time() -> None:
    one = meter(Reading(100, 1), Reading(300, 1), Reading(300, 1), seconds=(0.0, 2.0, 3.0))
    one.begin("1000.0")
    assert one.joules == 1000 + 2 * 200
    assert one.joules == 1400 + 300


@pytest.mark.parametrize(
    "later",
    [None, Reading(1, 1, 500, shared=True), Reading(1, 1, 50)],
    ids=["unreadable", "shared", "counter reset"],
)
def test_energy_that_was_once_unknown_stays_so(later: Reading | None) -> None:
    one = meter(Reading(1, 1, 100.0), later, Reading(1, 1, 900.0))
    one.begin()
    assert one.joules is None and one.joules is None and one.values() == {}


def test_a_side_thread_samples_and_ends() -> None:
    one = Meter(lambda: Reading(100, 1, 5.0), every=0.001)
    one.begin()
    while len(one._window) < 3:
        pass
    one.close()
    assert not one._thread.is_alive()


def counting(joules: float = 10.0) -> Meter:
    """A meter of a device that draws so many joules between two readings."""
    readings = (Reading(200.0, 0.5, joules * k) for k in range(1000))
    return meter(*readings)


def stop_at(spec: RunSpec, folder: RunFolder, step: int, meter: Meter | None) -> None:
    steps = train(spec, folder, CPU, meter)
    for progress in steps:
        if progress.step == step:
            steps.close()  # type: ignore[attr-defined]
            return


def energies(folder: RunFolder) -> dict[int, float]:
    return {e.step: e.value for e in folder.entries() if e.key == "energy/joules"}


def test_a_resumed_run_has_the_energy_of_all_attempts_once(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    spec = tiny(steps=20)
    folder = lab.run_of(spec)
    stop_at(spec, folder, 12, counting())  # entries at 5, 10; checkpoints at 10, 12: 40 J
    assert energies(folder) == {5: 10.0, 10: 20.0}
    for _ in train(spec, folder, CPU, counting(7.0)):
        pass
    assert energies(folder) == {5: 10.0, 10: 20.0, 15: 47.0, 20: 54.0}
    before = folder.log_path.read_bytes()
    for _ in train(spec, folder, CPU, counting()):  # nothing is left to train
        pass
    assert folder.log_path.read_bytes() == before


def test_an_attempt_that_was_not_metered_leaves_the_energy_unknown(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    spec = tiny(steps=20)
    folder = lab.run_of(spec)
    stop_at(spec, folder, 7, None)
    for _ in train(spec, folder, CPU, counting()):
        pass
    assert energies(folder) == {}
