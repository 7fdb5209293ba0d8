"""The device of this process: what it is, what it can do, what it used."""

from __future__ import annotations

import functools
import os
import platform
import resource
import subprocess
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tread_lab.spec.errors import UserError

# Dense bf16 peak in FLOP/s by datasheet; MFU is given only where the peak is known.
PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "H800": 989e12}


def pick(name: str | None = None) -> torch.device:
    """The named device, else the first accelerator, else the CPU.

    Raises:
        UserError: the named device is not here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device {name}: no such device; try cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is visible; try --device cpu")
    return device


def precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions that the device computes in itself, emulation not counted."""
    if device.type == "cuda":
        ampere = torch.cuda.get_device_capability(device) >= (8, 0)
        return ("fp32", "tf32", "bf16", "fp16") if ampere else ("fp32", "fp16")
    if device.type == "cpu":
        return ("fp32", "bf16", "fp16") if _cpu_has_fp16() else ("fp32", "bf16")
    return ("fp32",)


def facts(device: torch.device) -> dict[str, Any]:
    """What a sweep's `where` may ask of the device: `precision in device.precisions`."""
    return {"device": {"type": device.type, "precisions": list(precisions(device))}}


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse what the device cannot do, instead of silently doing something else.

    Raises:
        UserError: the device lacks the precision.
    """
    known = precisions(device)
    if precision not in known:
        where, can = f"{device.type} ({name(device)})", ", ".join(known)
        raise UserError(f"precision: {where} has no {precision}; choose one of {can}")


@functools.cache
def _cpu_has_fp16() -> bool:
    """Whether this torch has fp16 kernels for the CPU, backward pass included."""
    x = torch.ones(8, 8, requires_grad=True)
    try:
        with warnings.catch_warnings(action="ignore"), torch.autocast("cpu", dtype=torch.float16):
            y = x @ x
            torch.autograd.grad(y.float().sum(), x)
    except RuntimeError:
        return False
    return y.dtype == torch.float16


def name(device: torch.device) -> str:
    """The device as people know it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} x{torch.get_num_threads()} threads"


def peak_flops(device: torch.device) -> float | None:
    """Dense bf16 peak in FLOP/s, where known."""
    label = name(device)
    return next((peak for part, peak in PEAK_FLOPS.items() if part in label), None)


def peak_memory(device: torch.device) -> int:
    """Bytes: the allocator's peak on a GPU, the process's peak on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory(device: torch.device) -> int:
    """Bytes that the device has in all: a GPU's own, this machine's for the CPU."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def origin(device: torch.device) -> dict[str, Any]:
    """Code version and changes, package versions and device of this attempt."""
    packages = ("tread-lab", "torch", "accelerate", "torch-fidelity", "numpy", "ray", "mlflow")
    return {
        "code": _git("describe", "--always", "--dirty"),
        "diff": _git("diff", "HEAD")[:100_000],
        "packages": {p: v for p in packages if (v := _version(p))},
        "python": platform.python_version(),
        "device": name(device),
        "host": platform.node(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str:
    """Output of git on the source tree, or nothing where there is none."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return ""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
