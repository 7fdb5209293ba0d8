"""Claims about the devices where runs will run: who is asked, and that no GPU is used unasked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tread_lab.cli import parse
from tread_lab.records.lab import Lab
from tread_lab.specs import RunSpec, UserError
from tread_lab.sweep.execution.executors import EXECUTORS, Share
from tread_lab.sweep.plan.devices import DeviceFacts, Devices
from tread_lab.sweep.plan.forecast import forecast
from tread_lab.sweep.plan.preflight import check_arithmetic
from tread_lab.sweep.trial.task import Task

NEW = DeviceFacts("cuda", "H200", ("fp32", "tf32", "bf16", "fp16"), 141)
OLD = DeviceFacts("cuda", "V100", ("fp32", "fp16"), 16)


def test_a_run_may_meet_any_device_so_the_poorest_decides(tiny: Callable[..., RunSpec]) -> None:
    devices = Devices((NEW, OLD))
    assert devices.names() == {"device": {"type": "cuda", "precisions": ["fp32", "fp16"]}}
    assert devices.memory == 16
    with pytest.raises(UserError, match=r"cuda \(V100\) has no bf16; choose one of fp32, fp16"):
        check_arithmetic([Task(tiny(precision="bf16"))], devices)
    check_arithmetic([Task(tiny(precision="bf16"))], Devices((NEW,)))


def test_a_device_of_this_process_says_what_it_is() -> None:
    here = Devices.here("cpu", slots=3, packed=2)
    facts = DeviceFacts.of(torch.device("cpu"))
    assert (here.kinds, here.slots, here.packed) == ((facts,), 3, 2)
    assert (here.local, here.idle_gpus) == (torch.device("cpu"), 0)
    assert (facts.type, facts.precisions[0]) == ("cpu", "fp32") and facts.memory > 2**20
    assert Devices((OLD, NEW)).precisions == ("fp32", "fp16") and Devices((OLD,)).local is None


def test_another_machine_is_forecast_from_its_own_rates(
    lab: Lab, tiny: Callable[..., RunSpec]
) -> None:
    found = forecast(lab, [Task(tiny())], Devices((NEW,)), start=1.0)
    source = found.total([Task(tiny())]).source
    assert source == "from stated rates of H200"  # nothing was timed on this machine


def test_a_worker_without_a_share_of_a_gpu_uses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    from tread_lab.sweep.execution.ray_probe import take

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert Share().worker_device == "cpu"
    assert take(Share().worker_device).type == "cpu"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert Share(gpus=0.5).worker_device == "cuda"


@pytest.mark.parametrize(("device", "gpus"), [("cpu", 1.0), ("cuda", 0.0)])
def test_a_device_and_a_share_that_contradict_each_other(device: str, gpus: float) -> None:
    with pytest.raises(UserError, match=f"--device {device}: .*--gpus"):
        Share(device, gpus=gpus)


def test_a_share_fits_as_often_as_its_scarcest_part() -> None:
    assert Share(cpus=4).slots(cpus=10, gpus=8) == 2
    assert Share(cpus=1, gpus=0.5).slots(cpus=16, gpus=2) == 4
    assert Share(cpus=8, gpus=0.5).slots(cpus=16, gpus=2) == 2
    assert Share(gpus=1).slots(cpus=16, gpus=0) == 0
    assert [Share(gpus=gpus).packed(3) for gpus in (0.0, 0.25, 1.0)] == [3, 4, 1]


def test_runs_share_a_gpu_as_far_as_whole_shares_fit() -> None:
    assert [Share(gpus=gpus).packed(9) for gpus in (0.6, 0.4, 0.28)] == [1, 2, 3]


def test_an_executor_is_one_of_a_table() -> None:
    facts = {name: (kind.start_seconds, kind.side_by_side) for name, kind in EXECUTORS.items()}
    assert facts == {"ray": (10.0, True), "inline": (0.5, False)}
    with pytest.raises(UserError, match="invalid choice: 'slurm'"):
        parse(["sweep", "x.yaml", "--executor", "slurm"])
    names = {
        name: type(kind.make(Share("cpu"), None, None)).__name__ for name, kind in EXECUTORS.items()
    }
    assert names == {"ray": "RayExecutor", "inline": "InlineExecutor"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """16 cores and two GPUs without a cluster; notes which device is asked for."""
    asked: list[str] = []

    def here(device: str, *, threads: int, slots: int = 1, packed: int = 1) -> Devices:
        assert threads in (1, 2, 3, 4, 16)
        asked.append(device)
        return Devices((NEW,), slots, packed)

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    return asked


@pytest.mark.parametrize(
    ("share", "slots", "packed", "asked"),
    [
        (Share(), 16, 16, "cpu"),
        (Share(cpus=3), 5, 5, "cpu"),
        (Share(concurrent=4), 4, 4, "cpu"),
        (Share(concurrent=40), 16, 16, "cpu"),
        (Share(cpus=16), 1, 1, "cpu"),
        (Share(gpus=1), 2, 1, "cuda"),
        (Share(gpus=2), 1, 1, "cuda"),
        (Share(gpus=0.5, cpus=2), 4, 2, "cuda"),
    ],
)
def test_runs_of_this_machine_share_its_cores_and_gpus(
    machine: list[str], share: Share, slots: int, packed: int, asked: str
) -> None:
    devices = EXECUTORS["ray"].devices(share)
    assert (devices.slots, devices.packed, machine) == (slots, packed, [asked])


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (Share(cpus=17), "--cpus: 17 for a run, and this machine has 16"),
        (Share(gpus=3), "--gpus: 3 for a run, and this machine has 2"),
    ],
)
def test_more_than_this_machine_has_is_refused(machine: list[str], share: Share, said: str) -> None:
    with pytest.raises(UserError, match=said):
        EXECUTORS["ray"].devices(share)


def test_in_this_process_runs_go_one_by_one_on_the_named_device(machine: list[str]) -> None:
    devices = EXECUTORS["inline"].devices(Share("cpu", cpus=4))
    assert (devices.slots, devices.packed, machine) == (1, 1, ["cpu"])
    inline = EXECUTORS["inline"].make(Share("cpu", cpus=4), 9.0, None)
    assert (inline.device, inline.threads) == ("cpu", 4)  # type: ignore[attr-defined]
    assert inline.worker.hang_timeout == 9.0  # type: ignore[attr-defined]
    ray = EXECUTORS["ray"].make(Share(cpus=2), 5.0, None)
    assert (ray.share, ray.hang_timeout, ray.early) == (Share(cpus=2), 5.0, None)  # type: ignore[attr-defined]


def test_no_more_runs_share_a_gpu_than_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(device: str, *, slots: int, packed: int, threads: int) -> Devices:
        return Devices((NEW,), slots, packed, threads=threads)

    monkeypatch.setattr(Devices, "here", staticmethod(here))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    devices = EXECUTORS["ray"].devices(Share(gpus=0.25, concurrent=2))
    assert (devices.slots, devices.packed) == (2, 2)


def test_runs_are_timed_where_they_will_run(
    tiny: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.sweep.plan.devices.calibrate", lambda *what, **how: [what, how])
    away: Any = lambda specs: [len(specs)]  # noqa: E731
    here = Devices((OLD,), 9, local=torch.device("cpu"), threads=3, timer=away)
    timed: Any = here.time([tiny()], at_once=2)
    assert timed == [([tiny()], torch.device("cpu")), {"slots": 2, "threads": 3}]
    assert Devices((OLD,), timer=away).time([tiny(), tiny()], at_once=1) == [2]
    assert Devices((OLD,)).time([tiny()], at_once=1) is None
