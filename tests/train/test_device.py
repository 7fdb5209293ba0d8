"""Claims about the device, with a pretended machine of two GPUs where CUDA is concerned."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.runs import CPU, small_run
from tread_lab import hardware
from tread_lab.config import UserError
from tread_lab.records.run_folder import RunFolder
from tread_lab.train import device as devices
from tread_lab.train.device import pick
from tread_lab.train.loop import train

GPU_1 = torch.device("cuda", 1)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Two GPUs that only note what they are told."""
    calls: list[tuple[Any, ...]] = []

    def noted(name: str, answer: Any = None) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls.append((name, *arguments))
            return answer

        return call

    def visible() -> int:
        return 0 if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else 2

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: visible() > 0)
    monkeypatch.setattr(torch.cuda, "device_count", visible)
    told = ("set_device", "empty_cache", "reset_peak_memory_stats")
    for name in (*told, "set_per_process_memory_fraction"):
        monkeypatch.setattr(torch.cuda, name, noted(name))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", noted("max_memory_allocated", 7))
    return calls


def test_index_beyond_the_gpus_is_refused(
    gpus: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^--device: must be below cuda:2, got cuda:2$"):
        pick("cuda:2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match=r"^--device: must be below cuda:1, got cuda:1$"):
        pick("cuda:1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"^--device cuda: no CUDA device is visible; try --device"):
        pick("cuda")


def test_deterministic_run_refuses_other_kernels(tmp_path: Path) -> None:
    seen: list[bool] = []
    for asked in (True, False):
        spec = small_run(execution={"deterministic": asked})
        for _ in train(spec, RunFolder(tmp_path / str(asked)), CPU):
            seen.append(torch.are_deterministic_algorithms_enabled())
    assert seen == [True] * 6 + [False] * 6


@pytest.mark.parametrize(
    ("label", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200 NVL", 835e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),  # a seventh of one
        ("NVIDIA GeForce RTX 3090", None),
    ],
)
def test_peak_follows_the_gpus_form(
    label: str, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: label)
    assert devices.peak_flops(GPU_1) == peak


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, 8.0, None),
        ({"cpu.max": "250000 100000\n", "memory.max": "1000000\n"}, 2.5, 1000000),
        ({"cpu.max": "1600000 100000\n", "memory.max": f"{2**62}\n"}, 8.0, None),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1.5, None),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8.0, None),
        ({"memory/memory.limit_in_bytes": "2000000\n"}, 8.0, 2000000),
    ],
)
def test_container_limits_bound_cpus_and_memory(
    files: dict[str, str],
    cpus: float,
    memory: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert hardware.usable_cpus() == cpus
    assert devices.memory(CPU) == (memory or machine)
