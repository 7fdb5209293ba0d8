"""Energy of a run by a stand-in of NVML: all attempts once, nothing where it would be wrong."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.engine.runs import train_until
from tests.sweep.plans import tiny
from tread_lab.engine.power import Meter, open_meter
from tread_lab.records.lab import Lab
from tread_lab.records.run_folder import RunFolder

CPU = torch.device("cpu")


class NVMLError(Exception):
    pass


class Nvml:
    """What a GPU tells: three quarters busy, and a counter; `None` is none."""

    NVMLError = NVMLError

    def __init__(self, joules: Callable[[], float | None], processes: Any = ()) -> None:
        self.joules, self.processes, self.asked = joules, list(processes), ""

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked = uuid
        return "handle"

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=75, memory=30)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        joules = self.joules()
        if joules is None:
            raise NVMLError("Not Supported")
        return int(1000 * joules)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return self.processes


def counting(joules: float = 10.0) -> Nvml:
    """A GPU that draws so many joules between two readings."""
    count = itertools.count()
    return Nvml(lambda: joules * next(count))


def metered(nvml: Nvml) -> Meter:
    """A meter whose clock goes on by two seconds at each entry."""
    clock = itertools.count(step=2.0)
    return Meter(nvml, "GPU-1", clock=lambda: next(clock))


def process(pid: int, gigabytes: float | None) -> SimpleNamespace:
    size = None if gigabytes is None else int(gigabytes * 1e9)
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


@pytest.mark.parametrize(
    ("processes", "shared"),
    [
        ([], False),
        ([process(os.getpid(), 40), process(1, 0.5)], False),  # a bare context
        ([process(os.getpid(), 0.6), process(1, 3)], True),
        ([process(77, 40), process(78, 0.5)], False),  # this one, as it is named outside
        ([process(77, 40), process(78, 3)], True),
        ([process(os.getpid(), None), process(78, None)], False),
    ],
)
def test_energy_is_not_known_where_another_process_shares_the_gpu(
    processes: list[Any], shared: bool
) -> None:
    assert (metered(Nvml(lambda: 1.0, processes)).energy() is None) == shared


def test_a_gpu_is_found_by_its_uuid_and_one_without_a_counter_has_no_meter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, nvml = torch.device("cuda", 0), counting()
    properties = SimpleNamespace(uuid="4d2c")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_meter(gpu) is not None and nvml.asked == "GPU-4d2c"
    assert open_meter(CPU) is None
    for module in (Nvml(lambda: None), None):  # `None`: not installed
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert open_meter(gpu) is None


def test_energy_is_the_difference_of_the_counter_and_power_its_rate() -> None:
    meter = metered(counting())
    meter.begin("1000.0")
    assert meter.values() == {"energy/joules": 1010, "power/watts": 5, "gpu/utilisation": 0.75}
    assert meter.energy() == 1020  # as at a checkpoint
    assert meter.values() == {"energy/joules": 1030, "power/watts": 10, "gpu/utilisation": 0.75}


@pytest.mark.parametrize("later", [None, 50.0], ids=["unreadable", "counter reset"])
def test_energy_that_was_once_unknown_stays_so(later: float | None) -> None:
    told = iter([1.0, 100.0, later, 900.0, 901.0])
    meter = metered(Nvml(lambda: next(told)))
    assert meter.energy() is None and meter.energy() is None and meter.values() == {}


def energies(folder: RunFolder) -> dict[int, float]:
    return {e.step: e.value for e in folder.entries() if e.key == "energy/joules"}


def test_a_resumed_run_has_the_energy_of_all_attempts_once(lab: Lab) -> None:
    spec = tiny(steps=20)
    folder = lab.run_of(spec)
    # Entries at 5, 10; checkpoints at 10, 12: 40 J.
    train_until(spec, folder.path, 12, meter=metered(counting()))
    assert energies(folder) == {5: 10.0, 10: 20.0}
    train_until(spec, folder.path, meter=metered(counting(7.0)))
    assert energies(folder) == {5: 10.0, 10: 20.0, 15: 47.0, 20: 54.0}
    before = folder.log_path.read_bytes()
    train_until(spec, folder.path, meter=metered(counting()))  # nothing is left to train
    assert folder.log_path.read_bytes() == before


def test_an_attempt_that_was_not_metered_leaves_the_energy_unknown(lab: Lab) -> None:
    spec = tiny(steps=20)
    folder = lab.run_of(spec)
    train_until(spec, folder.path, 7)
    train_until(spec, folder.path, meter=metered(counting()))
    assert energies(folder) == {}
