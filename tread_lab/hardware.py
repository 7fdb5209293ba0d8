"""The processors of this machine, asked without torch: their models, precisions and peaks."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Dense bf16 peak in FLOP/s by datasheet; MFU is given only where the peak is known.
PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "H800": 989e12}
SLOWER = {"H100 PCIe": 756e12, "H800 PCIe": 756e12, "H100 NVL": 835e12, "H200 NVL": 835e12}
CPU = ("fp32", "bf16", "fp16")  # precisions that the device computes in itself
AMPERE = ("fp32", "tf32", "bf16", "fp16")  # of a GPU from that generation on
OLDER = ("fp32", "fp16")  # of a GPU before it
_CGROUP = Path("/sys/fs/cgroup")  # limits of a container, as version 2 and version 1 name them
_QUERY = "--query-gpu=index,uuid,compute_cap,name"


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use: its model, and the precisions that it computes in."""

    model: str
    precisions: tuple[str, ...]


def gpus() -> list[Gpu]:
    """Return the GPUs of this machine that CUDA_VISIBLE_DEVICES does not hide, in its order."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(_all_gpus().values())
    found, names = list(_all_gpus().items()), [word.strip() for word in visible.split(",")]
    return [
        gpu
        for name in names
        for ids, gpu in found
        if name and (name == ids[0] or ids[1].startswith(name))
    ]


@functools.cache
def _all_gpus() -> Mapping[tuple[str, str], Gpu]:
    """Return the GPUs by (index, UUID); none where the driver does not answer."""
    words = ["nvidia-smi", _QUERY, "--format=csv,noheader"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for line in answer.stdout.splitlines():
        index, uuid, capability, name = (word.strip() for word in line.split(",", 3))
        found[index, uuid] = Gpu(name, AMPERE if float(capability) >= 8 else OLDER)
    return found


def of_gpu(table: Mapping[str, T], label: str) -> T | None:
    """Return what a table has of a GPU of this name; it has nothing of a part of one (MIG)."""
    return next((x for part, x in table.items() if part in label and " MIG " not in label), None)


@functools.cache
def processor() -> str:
    """Return the model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def usable_cpus() -> float:
    """Return how many CPUs this process may use: those it is bound to, less by a quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    v1 = limits("cpu/cpu.cfs_quota_us") + limits("cpu/cpu.cfs_period_us")
    quotas = [q for q in (limits("cpu.max"), v1) if len(q) == 2 and q[0] > 0]
    return min([float(bound or 1), *(quota / period for quota, period in quotas)])


def limits(name: str) -> list[int]:
    """Return the numbers in a file of the cgroup; none where it is absent or says `max`."""
    try:
        return [int(word) for word in (_CGROUP / name).read_text().split()]
    except (OSError, ValueError):
        return []
