"""Claims about the devices where runs will run: the poorest decides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tread_lab.specs import UserError
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
    assert (here.threads, here.idle_gpus) == (5, 0)
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
