"""Claims about the devices where runs will run: the poorest decides, and torch is not asked."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from tread_lab import hardware
from tread_lab.config import UserError
from tread_lab.hardware import AMPERE, OLDER, DeviceFacts, Devices, check_precisions
from tread_lab.train.device import model, precisions

NEW, OLD = DeviceFacts("cuda", "H200", AMPERE), DeviceFacts("cuda", "V100", OLDER)


def test_poorest_device_decides() -> None:
    both = Devices((NEW, OLD))
    assert both.names() == {"device": {"type": "cuda", "precisions": ["fp32", "fp16"]}}
    assert Devices((OLD, NEW)).precisions == ("fp32", "fp16")
    with pytest.raises(
        UserError, match=r"^precision: must be one of fp.* on cuda \(V100\), got bf16"
    ):
        check_precisions(["fp16", "bf16"], both)


def test_cpu_is_what_torch_says() -> None:
    here = Devices.here("cpu", slots=3, runs_per_device=2, threads=5)
    cpu = torch.device("cpu")
    assert here.kinds == (DeviceFacts("cpu", model(cpu), precisions(cpu)),)
    assert (here.slots, here.runs_per_device, here.threads) == (3, 2, 5)


@pytest.mark.parametrize(
    ("wanted", "gpus", "found"),
    [
        (None, 0, "cpu"),
        (None, 2, "GPU 0"),
        ("cuda:1", 2, "GPU 1"),
        ("cuda", 0, "no CUDA device is visible. Try --device cpu"),
        ("cuda:2", 2, "2 CUDA devices are visible. Try"),
        ("tpu", 2, "must be cpu, cuda or cuda:N, got tpu"),
    ],
)
def test_named_device_is_here(
    wanted: str | None, gpus: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [DeviceFacts("cuda", f"GPU {k}", AMPERE) for k in range(gpus)]
    monkeypatch.setattr(hardware, "gpus", lambda: own)
    refused = found not in ("cpu", "GPU 0", "GPU 1")
    with pytest.raises(UserError, match=found) if refused else nullcontext():
        (kind,) = Devices.here(wanted).kinds
        assert found in (kind.type, kind.model)
