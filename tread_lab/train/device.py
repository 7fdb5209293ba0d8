"""The device of this process: what it is, what it can do, what it used."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
from typing import TypeVar

import torch

from tread_lab.config.errors import UserError
from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount, counted
from tread_lab.cost.training import Cost, cost
from tread_lab.hardware import AMPERE, OLDER, PEAK_FLOPS, SLOWER, limits, of_gpu, processor
from tread_lab.hardware import CPU as CPU_PRECISIONS
from tread_lab.train.precision import EAGER, arithmetic

T = TypeVar("T")

CONTEXT = 10**9  # bytes of a GPU for CUDA's context, kernels and library workspaces; an upper guess


def pick(name: str | None = None) -> torch.device:
    """Return the named device; by default a GPU if available, else the CPU. A GPU has its index.

    `cuda` is the first GPU. With the CPU, CUDA is not initialized.

    Raises:
        UserError: unknown or invisible device.
    """
    if name is None:
        # Torch remembers GPUs that `--device cpu` has hidden since.
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
        name = "cuda" if torch.cuda.is_available() and not hidden else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device {name}: must be a device. Try cpu or cuda.") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is visible. Try --device cpu.")
    count = torch.cuda.device_count()
    # Else cuBLAS may vary; torch looks once, at the first product, which may be of another run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Lengths of routes differ, and blocks of fixed sizes leave holes; read at the first tensor.
    if "PYTORCH_ALLOC_CONF" not in os.environ:
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    index = device.index or 0
    if index >= count:
        raise UserError(f"--device: must be below cuda:{count}, got {name}")
    return torch.device("cuda", index)


def use(device: torch.device, *, deterministic: bool = False) -> None:
    """Make a GPU the current device of the process.

    Args:
        deterministic: refuse nondeterministic kernels.
    """
    if deterministic != torch.are_deterministic_algorithms_enabled():  # which imports the compiler
        torch.use_deterministic_algorithms(deterministic)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        _keep_freed_memory()


# Parameters of glibc's `mallopt`, and their largest useful values.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER, _MOST = 2**31 - 1, 32 * 2**20


@functools.cache
def _keep_freed_memory() -> None:
    """Let tensors that are freed make room for the next ones within this process.

    Else glibc gives large ones back to the kernel and asks for them again, page by page: a quarter
    of the time of a forward pass on small networks. `release` gives back what is free.
    """
    c = _glibc()
    if c is not None:
        c.mallopt(_M_MMAP_THRESHOLD, _MOST)
        c.mallopt(_M_TRIM_THRESHOLD, _NEVER)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    c = ctypes.CDLL(None)
    return c if hasattr(c, "mallopt") else None


@functools.cache
def _freeze_libraries() -> None:
    """Take what lives now out of the garbage collector's sight, until the process ends."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # else libraries complain at the end of what was not collected


def release(device: torch.device) -> None:
    """Release the memory of earlier runs of this process.

    Objects alive at the first call, mostly libraries, are frozen, which makes later collections a
    hundred times faster.
    """
    gc.collect()
    _freeze_libraries()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif (c := _glibc()) is not None:
        c.malloc_trim(0)


def pins(device: torch.device) -> bool:
    """Return whether copies to the device profit from page-locked memory."""
    return device.type == "cuda"


def precisions(device: torch.device) -> tuple[str, ...]:
    """Return the precisions that the device supports natively."""
    if device.type == "cuda":
        return AMPERE if torch.cuda.get_device_capability(device) >= (8, 0) else OLDER
    return CPU_PRECISIONS if device.type == "cpu" else ("fp32",)


def check_precision(precision: str, device: torch.device) -> None:
    """Refuse unsupported precisions, without fallback.

    Raises:
        UserError: the device lacks the precision.
    """
    own_precisions = precisions(device)
    if precision not in own_precisions:
        where, can = f"{device.type} ({name(device)})", ", ".join(own_precisions)
        raise UserError(f"precision: must be one of {can} on {where}, got {precision}")


def name(device: torch.device) -> str:
    """Return a readable device name."""
    threads = "" if device.type == "cuda" else f", {counted(torch.get_num_threads(), 'thread')}"
    return f"{model(device)}{threads}"


def model(device: torch.device) -> str:
    """Return the model of a GPU or of this machine's processor, the key of recorded speeds."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor()


def peak_flops(device: torch.device) -> float | None:
    """Return the dense bf16 peak in FLOP/s, or `None` if unknown."""
    return of_gpu(SLOWER | PEAK_FLOPS, name(device))


def reset_peak(device: torch.device) -> None:
    """Reset the memory peak of a GPU."""
    if device.type == "cuda":
        use(device)
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Return the allocator's peak on a GPU since `reset_peak`; `None` on a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def memory(device: torch.device) -> int:
    """Return the bytes for runs: of a GPU without CUDA's own share, or of this machine or
    container."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) - CONTEXT
    allowed = limits("memory.max") + limits("memory/memory.limit_in_bytes")
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *allowed])


def cost_on(spec: RunSpec, device_type: str) -> Cost:
    """Return the cost of a run, with memory as computed on this device type."""
    return cost(spec, compiled=arithmetic(spec, device_type) != EAGER)


def check_memory(spec: RunSpec, device_type: str, label: str, free: int, devices: int = 1) -> None:
    """Refuse a run that exceeds the memory of a device.

    Args:
        label: name of the device.
        free: its free bytes.
        devices: number of such devices per batch.

    Raises:
        UserError: states required and free memory, and a `micro_batch` that fits.
    """
    price, share = cost_on(spec, device_type), spec.train.batch // devices
    images = min(price.micro_batch, share)
    if (needed := price.memory_at(images)) <= free:
        return
    routes = " + ".join(map(str, spec.routes)) or "dense"
    fit = fitting_micro_batch(price, share, free)
    remedy = f"a larger device (one image per pass: {amount(price.memory_at(1))})"
    if fit:
        remedy = f"execution.micro_batch={fit} ({amount(price.memory_at(fit))})"
    raise UserError(
        f"memory: must be at least {amount(needed)} for {spec.model.name} {routes} at {images}"
        f" images per pass, got {amount(free)} of {label}. Try {remedy}."
    )


def fitting_micro_batch(price: Cost, batch: int, free: int) -> int:
    """Return the largest divisor of `batch` with which a run fits `free` bytes; 0 if none does."""
    state = price.memory_at(0)
    most = (free - state) // max(1, price.memory_at(1) - state)
    return next((n for n in range(min(batch, most), 0, -1) if batch % n == 0), 0)
