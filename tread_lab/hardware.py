"""The devices where runs will run, asked without torch, and what each run gets of them."""

from __future__ import annotations

import functools
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tread_lab.config.errors import UserError

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
class DeviceFacts:
    """Properties of one kind of device.

    Attributes:
        model: model of the GPU or processor, the key of recorded speeds.
    """

    type: str
    model: str
    precisions: tuple[str, ...]


def gpus() -> list[DeviceFacts]:
    """Return the GPUs of this machine allowed by CUDA_VISIBLE_DEVICES, in its order."""
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
def _all_gpus() -> Mapping[tuple[str, str], DeviceFacts]:
    """Return the GPUs by (index, UUID); none where the driver does not answer."""
    words = ["nvidia-smi", _QUERY, "--format=csv,noheader"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    found = {}
    for line in answer.stdout.splitlines():
        index, uuid, capability, name = (word.strip() for word in line.split(",", 3))
        found[index, uuid] = DeviceFacts("cuda", name, AMPERE if float(capability) >= 8 else OLDER)
    return found


def of_gpu(table: Mapping[str, T], label: str) -> T | None:
    """Return the table entry of a GPU name; none for MIG partitions."""
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
    """Return the number of CPUs of this process, by affinity and quota."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    v1 = limits("cpu/cpu.cfs_quota_us") + limits("cpu/cpu.cfs_period_us")
    quotas = [q for q in (limits("cpu.max"), v1) if len(q) == 2 and q[0] > 0]
    return min([float(bound or 1), *(quota / period for quota, period in quotas)])


def limits(name: str) -> list[int]:
    """Return the numbers in a cgroup file; none if it is missing or `max`."""
    try:
        return [int(word) for word in (_CGROUP / name).read_text().split()]
    except (OSError, ValueError):
        return []


@dataclass(frozen=True)
class Devices:
    """The devices where runs will run.

    Attributes:
        kinds: distinct kinds; a run may use any of them.
        slots: number of concurrent runs.
        runs_per_device: maximum of runs on one device.
        threads: CPU threads per run.
        per_run: devices that train one run together.
    """

    kinds: tuple[DeviceFacts, ...]
    slots: int = 1
    runs_per_device: int = 1
    threads: int = 1
    per_run: int = 1

    @staticmethod
    def here(
        wanted: str | None = None, *, slots: int = 1, runs_per_device: int = 1, threads: int = 1
    ) -> Devices:
        """Return the device `wanted` of this machine, or its best one.

        Raises:
            UserError: an unknown or invisible device.
        """
        return Devices((_facts(wanted),), slots, runs_per_device, threads)

    @property
    def type(self) -> str:
        return self.kinds[0].type

    @property
    def share(self) -> float:
        """Devices per run, less than 1 if runs share a GPU."""
        return self.per_run / (self.runs_per_device if self.type == "cuda" else 1)

    @property
    def precisions(self) -> tuple[str, ...]:
        """Precisions supported by every kind."""
        first, *others = (kind.precisions for kind in self.kinds)
        return tuple(p for p in first if all(p in other for other in others))

    def names(self) -> dict[str, Any]:
        """Return the names for `where`: `precision in device.precisions`."""
        return {"device": {"type": self.type, "precisions": list(self.precisions)}}


def _facts(wanted: str | None) -> DeviceFacts:
    here = [] if wanted == "cpu" else gpus()
    kind, _, index = (wanted or ("cuda" if here else "cpu")).partition(":")
    if kind == "cpu":
        return DeviceFacts("cpu", processor(), CPU)
    if kind != "cuda" or not (index or "0").isdecimal():
        remedy = "cuda" if kind == "gpu" else "cpu"
        required = f"must be cpu, cuda or cuda:N, got {wanted}. Try --device {remedy}."
        raise UserError(f"--device: {required}")
    if int(index or 0) >= len(here):
        found = f"{len(here)} CUDA devices are visible" if here else "no CUDA device is visible"
        raise UserError(f"--device {wanted}: {found}. Try --device cpu.")
    return here[int(index or 0)]


def check_precisions(precisions: Iterable[str], devices: Devices) -> None:
    """Refuse precisions that a kind of device lacks."""
    for precision in dict.fromkeys(precisions):
        for kind in devices.kinds:
            if precision not in kind.precisions:
                raise UserError(
                    f"precision: must be one of {', '.join(devices.precisions)} on {kind.type}"
                    f" ({kind.model}), got {precision}. Try `where: precision in device.precisions`"
                    " in a sweep."
                )


@dataclass(frozen=True)
class RunResources:
    """CPUs, GPUs and device of a run.

    Attributes:
        device: the requested device; `None` for a GPU if runs have a share of one, else the CPU.
        cpus: CPUs per process.
        gpus: number of GPUs, or a share of one in Ray's sense; memory is not divided.
        concurrent: maximum of concurrent runs.
        processes: CPU processes per run; on GPUs, one per GPU.
    """

    device: str | None = None
    cpus: int = 1
    gpus: float = 0.0
    concurrent: int | None = None
    processes: int = 1

    def __post_init__(self) -> None:
        named = (self.device or "").partition(":")[0]
        if bool(self.gpus) != (named == "cuda") and named:
            raise UserError(f"--gpus: must fit --device {self.device}, got {self.gpus:g}")
        if self.gpus > 1 and (self.gpus % 1 or self.device not in (None, "cuda")):
            raise UserError(
                "--gpus: must be a share of one GPU (at most 1) or whole GPUs of --device cuda,"
                f" got {self.gpus:g} of {self.device or 'cuda'}. Try --gpus"
                f" {math.ceil(self.gpus)} --device cuda."
            )
        if self.gpus and self.processes > 1:
            raise UserError(
                f"--processes: must be 1 with GPUs, got {self.processes}. Try --gpus"
                f" {self.processes}, or --device cpu."
            )

    @property
    def devices(self) -> int:
        """Number of devices per run, each with its own process."""
        return max(int(self.gpus), self.processes)

    @property
    def cores(self) -> int:
        """Number of CPU cores per run."""
        return self.cpus * self.devices

    @property
    def worker_device(self) -> str:
        """Device of a worker, which sees only its own GPUs."""
        return "cuda" if self.gpus else self.device or "cpu"

    def slots(self, cpus: float, gpus: float) -> int:
        """Return the number of runs that fit at once on a machine with these CPUs and GPUs."""
        fits = [cpus // self.cores]
        if self.gpus:
            fits.append(int(gpus) // math.ceil(self.gpus) * max(1, int(1 / self.gpus)))
        return int(min(fits))

    def on(self, devices: Devices, slots: int) -> Devices:
        """Return devices with their share per run and `slots` concurrent runs."""
        shared = max(1, int(1 / self.gpus)) if self.gpus else slots
        at_once = min(slots, self.concurrent or slots)
        return replace(
            devices,
            slots=at_once,
            runs_per_device=min(at_once, shared),
            threads=self.cpus,
            per_run=self.devices,
        )


def cpus_here() -> int:
    """Return the whole CPUs available to runs on this machine. Ray receives this number, because it
    ignores affinity and some container limits.
    """
    return max(1, int(usable_cpus()))
