"""What runs get of a machine, and how many fit."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab import hardware
from tread_lab.cli import launch
from tread_lab.cli.launch import devices_of, make_runner
from tread_lab.config import UserError
from tread_lab.hardware import DeviceFacts, Devices, RunResources

NEW = DeviceFacts("cuda", "H200", ("fp32", "tf32", "bf16", "fp16"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """16 cores and two GPUs without a cluster; notes which device is asked for."""
    asked = list[str]()

    def here(device: str) -> Devices:
        asked.append(device)
        return Devices((NEW,))

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(launch, "visible_gpus", lambda: [None, None])
    monkeypatch.setattr(hardware, "usable_cpus", lambda: 16.5)  # the rest are other containers'
    return asked


@pytest.mark.parametrize(
    ("resources", "slots", "runs_per_device", "asked"),
    [
        (RunResources(), 16, 16, "cpu"),
        (RunResources(concurrent=4), 4, 4, "cpu"),
        (RunResources(cpus=3), 5, 5, "cpu"),
        (RunResources(gpus=1), 2, 1, "cuda"),
        (RunResources(gpus=2), 1, 1, "cuda"),
        (RunResources(processes=4), 4, 4, "cpu"),
        (RunResources("mps"), 16, 16, "mps"),
        (RunResources(gpus=0.5, cpus=2), 4, 2, "cuda"),
        (RunResources(gpus=0.6), 2, 1, "cuda"),  # a share is of one GPU
        (RunResources(gpus=0.25, concurrent=2), 2, 2, "cuda"),
    ],
)
def test_runs_share_cores_and_gpus(
    machine: list[str], resources: RunResources, slots: int, runs_per_device: int, asked: str
) -> None:
    devices = devices_of("ray", resources)
    assert (devices.slots, devices.runs_per_device) == (slots, runs_per_device)
    assert (devices.per_run, devices.threads) == (resources.devices, resources.cpus)
    assert devices_of("inline", resources).slots == 1 and machine == [asked] * 2
    runner: Any = make_runner("inline", resources, hang_timeout=9.0)
    assert (runner.device, runner.threads) == (asked, resources.cpus)
    assert (runner.worker.hang_timeout, runner.worker.processes.count) == (9.0, resources.devices)


@pytest.mark.parametrize(
    ("gpus", "made", "said"),
    [
        (2, {"cpus": 17}, "--cpus: must be at most 16 here, got 17"),
        (2, {"gpus": 3}, "--gpus: must be at most 2 on this machine, got 3"),
        (
            2,
            {"gpus": 1.5},
            "--gpus: must be a share of one GPU",
        ),
        (2, {"gpus": 2, "processes": 2}, "--processes: must be 1 with GPUs, got 2"),
        (0, {"device": "cuda:0", "gpus": 1}, "--gpus: must be at most 0 on this machine, got 1"),
        (2, {"device": "cuda:1"}, "--gpus: must fit --device cuda:1, got 0"),
        (2, {"device": "cuda:1", "gpus": 2}, "--gpus: must be a share of one GPU"),
        (2, {"device": "cpu", "gpus": 0.5}, "--gpus: must fit --device cpu, got 0.5"),
    ],
)
@pytest.mark.usefixtures("machine")
def test_impossible_resources_are_refused(
    gpus: int, made: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "visible_gpus", lambda: [None] * gpus)
    with pytest.raises(UserError, match=f"^{said}"):
        devices_of("ray", RunResources(**made))
