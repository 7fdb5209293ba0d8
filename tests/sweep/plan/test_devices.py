"""Claims about the devices where runs will run: the poorest decides, and which one is timed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sweep.plans import tiny
from tread_lab.engine.cost.speed import Speed
from tread_lab.specs import UserError
from tread_lab.sweep.plan import devices as module
from tread_lab.sweep.plan.devices import DeviceFacts, Devices

NEW = DeviceFacts("cuda", "H200", ("fp32", "tf32", "bf16", "fp16"), 141)
OLD = DeviceFacts("cuda", "V100", ("fp32", "fp16"), 16)


def test_a_run_may_meet_any_device_so_the_poorest_decides() -> None:
    devices = Devices((NEW, OLD))
    assert devices.names() == {"device": {"type": "cuda", "precisions": ["fp32", "fp16"]}}
    assert devices.memory == 16 and Devices((OLD, NEW)).precisions == ("fp32", "fp16")


def test_a_device_of_this_process_says_what_it_is() -> None:
    here = Devices.here("cpu", slots=3, runs_per_device=2, threads=5)
    facts = DeviceFacts.of(torch.device("cpu"))
    assert (here.kinds, here.slots, here.runs_per_device) == ((facts,), 3, 2)
    assert (here.local, here.threads, here.idle_gpus) == (torch.device("cpu"), 5, 0)
    assert (facts.type, facts.precisions[0]) == ("cpu", "fp32") and facts.memory > 2**20


def test_a_gpu_is_asked_by_a_process_that_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cpu = torch.device("cpu")
    assert DeviceFacts.from_afar(cpu) == DeviceFacts.of(cpu)
    monkeypatch.setattr("tread_lab.sweep.plan.devices.pick", lambda _: torch.device("cuda", 3))
    monkeypatch.setattr(sys, "executable", "/bin/false")  # in place of one without that GPU
    with pytest.raises(UserError, match=r"cuda:3 does not answer \(.+\); try --device cpu"):
        Devices.here()
    (python := tmp_path / "python").write_text("#!/bin/sh\necho 'Traceback\nNo GPU' >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(UserError, match=r"cuda:3 does not answer \(No GPU\)"):
        Devices.here()


@pytest.mark.parametrize(
    ("cpus", "threads", "processes", "times"),
    [(8.0, 3, 1, 1.0), (2.0, 4, 1, 2.0), (0.5, 1, 1, 2.0), (2.0, 2, 2, 2.0)],
)
def test_runs_are_timed_where_they_will_run_and_wait_for_cpus_that_are_not_theirs_alone(
    cpus: float, threads: int, processes: int, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def calibrate(*what: Any, **how: Any) -> list[Speed]:
        asked.append((*what, how))
        return [Speed(3.0, 5.0, 7.0)]

    monkeypatch.setattr(module, "calibrate", calibrate)
    monkeypatch.setattr(module, "usable_cpus", lambda: cpus)
    away: Any = lambda specs: [len(specs)]  # noqa: E731
    cpu = torch.device("cpu")
    here = Devices((OLD,), 9, local=cpu, threads=threads, timer=away, per_run=processes)
    assert here.time([tiny()], at_once=2) == [Speed(3.0 * times, 5.0 * times, 7.0)]
    assert asked == [([tiny()], cpu, {"slots": 2, "threads": threads})]
    on_gpu = replace(here, local=torch.device("cuda"))
    assert on_gpu.time([tiny()], at_once=2) == [Speed(3.0, 5.0, 7.0)]
    assert Devices((OLD,), timer=away).time([tiny(), tiny()], at_once=1) == [2]
    assert Devices((OLD,)).time([tiny()], at_once=1) is None
