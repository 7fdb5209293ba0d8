"""Shares of a machine and the table of executors: no GPU is used unasked."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tread_lab.cli import parse
from tread_lab.specs import UserError
from tread_lab.sweep.execution.executors import EXECUTORS
from tread_lab.sweep.execution.resources import TrialResources
from tread_lab.sweep.plan.devices import DeviceFacts, Devices

NEW = DeviceFacts("cuda", "H200", ("fp32", "tf32", "bf16", "fp16"), 141)


def test_a_worker_without_a_share_of_a_gpu_uses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_probe import take

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert TrialResources().worker_device == "cpu"
    assert take(TrialResources().worker_device).type == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert TrialResources(gpus=0.5).worker_device == "cuda"


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 1.0), ("cuda", 0.0)])
def test_a_device_and_a_share_that_contradict_each_other(device: str, gpus: float) -> None:
    with pytest.raises(UserError, match=f"--device {device}: .*--gpus"):
        TrialResources(device, gpus=gpus)


def test_a_share_fits_as_often_as_its_scarcest_part() -> None:
    assert TrialResources(cpus=4).slots(cpus=10, gpus=8) == 2
    assert TrialResources(cpus=1, gpus=0.5).slots(cpus=16, gpus=2) == 4
    assert TrialResources(cpus=8, gpus=0.5).slots(cpus=16, gpus=2) == 2
    assert TrialResources(gpus=1).slots(cpus=16, gpus=0) == 0
    assert [TrialResources(gpus=gpus).runs_per_device(3) for gpus in (0.0, 0.25, 1.0)] == [3, 4, 1]


def test_runs_share_a_gpu_as_far_as_whole_shares_fit() -> None:
    assert [TrialResources(gpus=gpus).runs_per_device(9) for gpus in (0.6, 0.4, 0.28)] == [1, 2, 3]
    shares = ((0.6, 2), (0.4, 8), (0.1, 1), (2, 5), (1.5, 4), (0.5, 0.5))
    assert [TrialResources(gpus=gpus).slots(64, has) for gpus, has in shares] == [
        2,
        16,
        10,
        2,
        2,
        0,
    ]


def test_an_executor_is_one_of_a_table() -> None:
    facts = {name: (kind.start_seconds, kind.side_by_side) for name, kind in EXECUTORS.items()}
    assert facts == {"ray": (10.0, True), "inline": (0.5, False)}
    with pytest.raises(UserError, match="invalid choice: 'slurm'"):
        parse(["sweep", "x.yaml", "--executor", "slurm"])
    names = {
        name: type(kind.make(TrialResources("cpu"), None, None)).__name__
        for name, kind in EXECUTORS.items()
    }
    assert names == {"ray": "RayExecutor", "inline": "InlineExecutor"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """16 cores and two GPUs without a cluster; notes which device is asked for."""
    asked: list[str] = []

    def here(device: str, *, threads: int, slots: int = 1, runs_per_device: int = 1) -> Devices:
        assert threads in (1, 2, 3, 4, 16)
        asked.append(device)
        return Devices((NEW,), slots, runs_per_device)

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    return asked


@pytest.mark.parametrize(
    ("resources", "slots", "runs_per_device", "asked"),
    [
        (TrialResources(), 16, 16, "cpu"),
        (TrialResources(cpus=3), 5, 5, "cpu"),
        (TrialResources(concurrent=4), 4, 4, "cpu"),
        (TrialResources(concurrent=40), 16, 16, "cpu"),
        (TrialResources(cpus=16), 1, 1, "cpu"),
        (TrialResources(gpus=1), 2, 1, "cuda"),
        (TrialResources(gpus=2), 1, 1, "cuda"),
        (TrialResources(gpus=0.5, cpus=2), 4, 2, "cuda"),
    ],
)
def test_runs_of_this_machine_share_its_cores_and_gpus(
    machine: list[str], resources: TrialResources, slots: int, runs_per_device: int, asked: str
) -> None:
    devices = EXECUTORS["ray"].devices(resources)
    assert (devices.slots, devices.runs_per_device, machine) == (slots, runs_per_device, [asked])


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (TrialResources(cpus=17), "--cpus: 17 for a run, and this machine has 16"),
        (TrialResources(gpus=3), "--gpus: 3 for a run, and this machine has 2"),
    ],
)
def test_more_than_this_machine_has_is_refused(
    machine: list[str], resources: TrialResources, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        EXECUTORS["ray"].devices(resources)


def test_a_gpu_that_is_named_and_not_there_is_said_by_the_option_that_was_typed(
    machine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match=r"^--device cuda:0: this machine has no GPU that torch"):
        EXECUTORS["ray"].devices(TrialResources("cuda:0", gpus=1))


def test_in_this_process_runs_go_one_by_one_on_the_named_device(machine: list[str]) -> None:
    devices = EXECUTORS["inline"].devices(TrialResources("cpu", cpus=4))
    assert (devices.slots, devices.runs_per_device, machine) == (1, 1, ["cpu"])
    inline = EXECUTORS["inline"].make(TrialResources("cpu", cpus=4), 9.0, None)
    assert (inline.device, inline.threads) == ("cpu", 4)  # type: ignore[attr-defined]
    assert inline.worker.hang_timeout == 9.0  # type: ignore[attr-defined]
    ray = EXECUTORS["ray"].make(TrialResources(cpus=2), 5.0, None)
    assert (ray.resources, ray.hang_timeout, ray.early) == (TrialResources(cpus=2), 5.0, None)  # type: ignore[attr-defined]


def test_no_more_runs_share_a_gpu_than_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(device: str, *, slots: int, runs_per_device: int, threads: int) -> Devices:
        return Devices((NEW,), slots, runs_per_device, threads=threads)

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    devices = EXECUTORS["ray"].devices(TrialResources(gpus=0.25, concurrent=2))
    assert (devices.slots, devices.runs_per_device) == (2, 2)


def test_runs_of_one_node_alone_share_a_device() -> None:
    assert TrialResources().at_once([4, 2]) == (6, 4)
    assert TrialResources(concurrent=5).at_once([4, 2]) == (5, 4)
    assert TrialResources(concurrent=3).at_once([2, 4]) == (3, 3)
    assert TrialResources(gpus=0.5).at_once([4, 2]) == (6, 2)
    assert TrialResources(gpus=0.25, concurrent=2).at_once([4]) == (2, 2)
    assert (
        TrialResources().cpus,
        TrialResources().gpus,
        TrialResources().device,
        TrialResources().concurrent,
    ) == (1, 0.0, None, None)


@pytest.mark.parametrize(
    ("device", "gpus", "worker"),
    [
        (None, 0.0, "cpu"),
        (None, 1.0, "cuda"),
        ("cuda", 0.5, "cuda"),
        ("cuda:1", 1.0, "cuda"),  # a worker counts the GPUs that it was given
        ("cpu", 0.0, "cpu"),
        ("mps", 0.0, "mps"),
    ],
)
def test_a_worker_has_the_named_device_or_the_gpu_of_its_share(
    device: str | None, gpus: float, worker: str
) -> None:
    assert TrialResources(device, gpus=gpus).worker_device == worker


@pytest.mark.parametrize(
    ("device", "gpus", "said"),
    [
        ("cuda:1", 0.0, "--device cuda:1: needs a GPU, and --gpus is 0"),
        ("cpu", 0.5, "--device cpu: has no use for --gpus 0.5"),
        ("mps", 1.0, "--device mps: has no use for --gpus 1"),
    ],
)
def test_what_a_share_contradicts_is_said_in_one_line(device: str, gpus: float, said: str) -> None:
    with pytest.raises(UserError, match=f"^{said}$"):
        TrialResources(device, gpus=gpus)


def test_the_devices_of_a_joined_cluster_are_those_that_it_says(
    machine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution import ray_probe

    monkeypatch.setattr(
        ray_probe, "cluster_devices", lambda resources: ("of the cluster", resources)
    )
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert EXECUTORS["ray"].devices(TrialResources(cpus=99)) == (
        "of the cluster",
        TrialResources(cpus=99),
    )
    assert EXECUTORS["inline"].devices(TrialResources("cpu", cpus=4)).slots == 1 and machine == [
        "cpu"
    ]


def test_what_a_machine_has_exactly_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def here(device: str, **how: Any) -> Any:
        asked.append((device, how))

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(os, "cpu_count", lambda: None)  # of which nothing is known
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    EXECUTORS["ray"].devices(TrialResources(gpus=1))
    EXECUTORS["ray"].devices(TrialResources("cpu"))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    EXECUTORS["ray"].devices(TrialResources(cpus=4))
    EXECUTORS["inline"].devices(TrialResources("mps", cpus=3))
    assert asked == [
        ("cuda", {"slots": 1, "runs_per_device": 1, "threads": 1}),
        ("cpu", {"slots": 1, "runs_per_device": 1, "threads": 1}),
        ("cpu", {"slots": 2, "runs_per_device": 2, "threads": 4}),
        ("mps", {"threads": 3}),
    ]
    with pytest.raises(UserError, match=r"^--gpus: 1\.5 for a run, and this machine has 1$"):
        EXECUTORS["ray"].devices(TrialResources(gpus=1.5))


def test_early_stopping_reaches_the_executor_that_runs_side_by_side() -> None:
    pytest.importorskip("ray")
    early: Any = SimpleNamespace()
    assert EXECUTORS["ray"].make(TrialResources(), None, early).early is early  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        EXECUTORS["inline"].make(TrialResources("cpu"), None, early)
