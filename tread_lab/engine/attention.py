"""The fastest attention backend for each length of a run, measured once for a lab and a device.

Torch prefers one backend for all lengths. A file in the lab's cache holds what was measured, so
that all runs of a lab on one model of device compute alike.
"""

# B batch, H heads, N tokens, d width of a head

from __future__ import annotations

import re
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tread_lab.backbones.parts import PREFERRED, Shape
from tread_lab.engine.cost.training import tokens_per_block
from tread_lab.engine.device import model
from tread_lab.engine.precision import PRECISIONS
from tread_lab.records.durable import read_json, write_json
from tread_lab.records.locks import Busy, exclusive
from tread_lab.specs.run import RunSpec

# device type -> its backends, by the names that the file has
BACKENDS: Mapping[str, Mapping[str, SDPBackend]] = {
    "cuda": {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    },
    "cpu": {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH},
}
TORCH = "torch"  # the backend that torch prefers
MARGIN = 0.95  # of torch's time, that another backend must stay below
TOKENS = {"cuda": 2**16, "cpu": 2**11}  # in a measured batch
ROUNDS = 7  # of which the median counts
_AGAIN = 0.2  # seconds until a file is looked at again that another process writes


def prefer_attention(spec: RunSpec, device: torch.device, cache: Path) -> None:
    """Let this process attend by the backends that were measured, or measure them, where the run
    asks for it; else torch chooses.

    Args:
        cache: the folder of the lab's caches.
    """
    PREFERRED.clear()
    if spec.execution.attention == TORCH or not spec.model.heads:
        return
    path = cache / f"attention-{_file_name(f'{model(device)} torch {torch.__version__}')}.json"
    shapes = {_label(spec, shape): shape for shape in shapes_of(spec)}
    while not shapes.keys() <= (chosen := read_json(path) or {}).keys():
        try:
            with exclusive(path.with_suffix(".lock"), "measuring attention"):
                _measure(shapes, spec.model.heads, device, path)
        except Busy:  # somebody else measures
            time.sleep(_AGAIN)
    known = BACKENDS[device.type]
    PREFERRED.update(
        {s: known[chosen[label]] for label, s in shapes.items() if chosen[label] in known}
    )


def _measure(shapes: Mapping[str, Shape], heads: int, device: torch.device, path: Path) -> None:
    """Add to the file what it lacks; the choices that it holds stay."""
    chosen: dict[str, str] = read_json(path) or {}
    for label in shapes.keys() - chosen.keys():
        chosen[label] = fastest(measured(shapes[label], heads, device))
    write_json(path, chosen)


def shapes_of(spec: RunSpec) -> set[Shape]:
    """Return lengths, head width and type of what blocks attend over, with and without routes."""
    d = spec.model.width // spec.model.heads
    dtype = PRECISIONS[spec.precision].autocast or torch.float32
    lengths = {spec.tokens, *tokens_per_block(spec)}
    return {(N + spec.text_tokens, d, dtype) for N in lengths}


def fastest(ms: Mapping[str, float]) -> str:
    """Return the backend of least time, or `torch` unless another one is clearly faster."""
    best = min(ms, key=ms.__getitem__)
    return best if ms[best] < MARGIN * ms[TORCH] else TORCH


def measured(shape: Shape, heads: int, device: torch.device) -> dict[str, float]:
    """Return milliseconds of a forward and backward pass by each backend that can do it."""
    N, d, dtype = shape
    B = max(1, TOKENS[device.type] // N)
    x = torch.randn(B, N, 3 * heads * d, device=device, dtype=dtype, requires_grad=True)
    clock = _gpu_ms if device.type == "cuda" else _cpu_ms
    times = {TORCH: clock(partial(_pass, x, heads, None))}
    for name, backend in BACKENDS[device.type].items():
        try:
            with warnings.catch_warnings(action="ignore"):  # each reason why it cannot
                times[name] = clock(partial(_pass, x, heads, backend))
        except RuntimeError:  # this backend cannot do it
            continue
    return times


def _pass(x_BNE: Tensor, heads: int, backend: SDPBackend | None) -> None:
    """Attend as a block does, from the fused map to the joined heads, and back."""
    B, N, E = x_BNE.shape
    q, k, v = (p.view(B, N, heads, -1).transpose(1, 2) for p in x_BNE.chunk(3, dim=2))
    with nullcontext() if backend is None else sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v)
    joined = out.transpose(1, 2).reshape(B, N, E // 3)
    torch.autograd.grad(joined, x_BNE, joined.detach())


def _cpu_ms(action: Callable[[], object]) -> float:
    """Return the median of several calls after one that counts for nothing."""
    times = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        action()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times[1:])


def _gpu_ms(action: Callable[[], object]) -> float:
    """Return the median of several calls, each of ten passes between two events."""
    times = []
    for _ in range(ROUNDS + 1):
        begin, end = (torch.cuda.Event(True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(10):
            action()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 10)
    return statistics.median(times[1:])


def _label(spec: RunSpec, shape: Shape) -> str:
    N, d, dtype = shape
    return f"{N} tokens, {spec.model.heads} heads of {d}, {str(dtype).removeprefix('torch.')}"


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text)
