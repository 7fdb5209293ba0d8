"""Shares of a machine and the table of executors: no GPU is used unasked."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.specs import UserError
from tread_lab.sweep.execution import executors
from tread_lab.sweep.execution.executors import EXECUTORS, TrialResources
from tread_lab.sweep.plan.devices import DeviceFacts, Devices

NEW = DeviceFacts("cuda", "H200", ("fp32", "tf32", "bf16", "fp16"))


@pytest.mark.parametrize(
    ("cpus", "gpus", "has", "slots"),
    [
        (4, 0, (10, 8), 2),
        (1, 0.5, (16, 2), 4),
        (8, 0.5, (16, 2), 2),
        (1, 1, (16, 0), 0),
        (1, 0.6, (64, 2), 2),  # whole shares of each GPU
        (1, 0.1, (64, 1), 10),
        (1, 2, (64, 5), 2),
        (30, 2, (64, 4), 1),  # CPU cores of each device
        (1, 0.5, (64, 0.5), 0),
    ],
)
def test_a_share_fits_as_often_as_its_scarcest_part(
    cpus: int, gpus: float, has: tuple[float, float], slots: int
) -> None:
    assert TrialResources(cpus=cpus, gpus=gpus).slots(*has) == slots


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """16 cores and two GPUs without a cluster; notes how its devices are asked for."""
    asked: list[Any] = []

    def here(device: str, *, threads: int, **how: Any) -> Devices:
        asked.append((device, threads))
        return Devices((NEW,), **how)

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(executors, "gpus", lambda: [NEW, NEW])
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(executors, "usable_cpus", lambda: 16.5)  # the rest are other containers'
    return asked


@pytest.mark.parametrize(
    ("resources", "slots", "runs_per_device", "asked"),
    [
        (TrialResources(), 16, 16, "cpu"),
        (TrialResources(concurrent=4), 4, 4, "cpu"),
        (TrialResources(concurrent=40), 16, 16, "cpu"),
        (TrialResources(cpus=3), 5, 5, "cpu"),
        (TrialResources(gpus=1), 2, 1, "cuda"),
        (TrialResources(gpus=2), 1, 1, "cuda"),
        (TrialResources(processes=4), 4, 4, "cpu"),
        (TrialResources("mps"), 16, 16, "mps"),
        (TrialResources("cuda:1", gpus=1), 2, 1, "cuda:1"),  # `pick` refuses what is not here
        (TrialResources(gpus=0.5, cpus=2), 4, 2, "cuda"),
        (TrialResources(gpus=0.25, concurrent=2), 2, 2, "cuda"),  # no more share than go at once
    ],
)
def test_runs_of_this_machine_share_its_cores_and_gpus(
    machine: list[Any], resources: TrialResources, slots: int, runs_per_device: int, asked: str
) -> None:
    devices = EXECUTORS["ray"].devices(resources)
    assert (devices.slots, devices.runs_per_device) == (slots, runs_per_device)
    assert devices.per_run == resources.devices
    inline: Any = EXECUTORS["inline"].make(resources, None, None)
    assert inline.device == asked and EXECUTORS["inline"].devices(resources)
    assert machine == [(asked, resources.cpus)] * 2


@pytest.mark.parametrize(
    ("gpus", "made", "said"),
    [
        (2, {"cpus": 17}, "--cpus: 17 for a run, and this machine has 16"),
        (2, {"gpus": 3}, "--gpus: 3 for a run, and this machine has 2"),
        (2, {"processes": 17}, "--cpus: 17 for a run, and this machine has 16"),
        (2, {"gpus": 2, "processes": 2}, "--processes: on CPUs, say --device cpu"),
        (0, {"device": "cuda:0", "gpus": 1}, "--device cuda:0: this machine has no GPU that CUDA"),
        (2, {"device": "cuda:1"}, "--device cuda:1: needs a GPU, and --gpus is 0"),
        (2, {"device": "cuda:1", "gpus": 2}, "--device cuda:1: --gpus 2 takes the first GPUs"),
        (2, {"device": "cpu", "gpus": 0.5}, "--device cpu: has no use for --gpus 0.5"),
    ],
)
@pytest.mark.usefixtures("machine")
def test_what_a_share_contradicts_or_this_machine_lacks_is_said_by_its_option(
    gpus: int, made: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "gpus", lambda: [NEW] * gpus)
    with pytest.raises(UserError, match=f"^{said}"):
        EXECUTORS["ray"].devices(TrialResources(**made))


def test_an_executor_has_the_resources_the_patience_and_the_judge_that_it_is_given() -> None:
    inline: Any = EXECUTORS["inline"].make(TrialResources("cpu", cpus=4), 9.0, None)
    assert (inline.device, inline.threads, inline.worker.hang_timeout) == ("cpu", 4, 9.0)
    pytest.importorskip("ray")
    early: Any = SimpleNamespace()
    ray: Any = EXECUTORS["ray"].make(TrialResources(cpus=2), 5.0, early)
    assert (ray.resources, ray.hang_timeout, ray.early) == (TrialResources(cpus=2), 5.0, early)
    with pytest.raises(AssertionError):  # nothing goes beside a run of this process
        EXECUTORS["inline"].make(TrialResources("cpu"), None, early)


def test_a_joined_cluster_says_its_devices_and_this_process_has_the_named_one(
    machine: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    monkeypatch.setattr(ray_probe, "cluster_devices", lambda resources: ("cluster", resources))
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    large = TrialResources(cpus=99)
    assert EXECUTORS["ray"].devices(large) == ("cluster", large)
    here = EXECUTORS["inline"].devices(TrialResources("mps", cpus=3))
    assert (here.slots, here.runs_per_device, machine) == (1, 1, [("mps", 3)])
