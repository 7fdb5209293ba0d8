"""The training step: dense, and routed with each attention of the fp32 block."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from gpu_phases.shared import Bench
from tread_lab.backbones.parts import attend
from tread_lab.config import RunSpec
from tread_lab.cost.training import cost
from tread_lab.train.device import cost_on
from tread_lab.train.provenance import attention_kernel

VARIANTS = {  # name -> the block after the route; `None` is dense
    "dense, compiled": None,
    "routed, compiled": "j+1",
    "routed, compiled, no fp32 block": "off",
    "routed, compiled, math": "j+1/math",
    "routed, compiled, flex": "j+1/flex",
    "routed, compiled, bf16": "j+1/bf16",
}
# What a kernel's name says of its work; the first that it holds counts.
KINDS = {
    "attention": ("flash", "attention", "sdpa", "fmha", "cudnn_generated", "flex"),
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "xmma"),
    "optimizer and EMA": ("multi_tensor", "foreach", "adam", "lerp"),
    "copies": ("memcpy", "memset", "copy", "index", "gather", "scatter"),
}


def measure(bench: Bench, size: str) -> None:
    """Time the steps of one published size and compare them with what is predicted; S has no
    attention of the fp32 block but torch's."""
    dense = 0.0
    for name, block in list(VARIANTS.items())[: 3 if size == "S" else None]:
        with bench.guarded("step", model=size, variant=name):
            routed = {} if block is None else {"routes": bench.route, "fp32_block": block}
            spec = bench.spec(size, **routed, precision="bf16")
            seconds = _step(bench, size, name, spec)
            if block is None:
                dense = seconds
            elif dense:
                said = {"measured": dense / seconds, "predicted": cost(spec).speedup}
                reached = said["measured"] / said["predicted"]
                bench.say("speed-up", model=size, variant=name, **said, reached=reached)


def bernoulli(bench: Bench) -> None:
    """Time a routed step of B/2 whose samples keep different numbers of tokens."""
    name = "routed, compiled, bernoulli"
    with bench.guarded("step", model="B", variant=name):
        routes = [{**route, "selection": "bernoulli"} for route in bench.route]
        _step(bench, "B", name, bench.spec("B", routes, precision="bf16"))


def _step(bench: Bench, size: str, name: str, spec: RunSpec) -> float:
    """Time one variant and write it with its MFU of executed FLOPs and its kernels of attention;
    return its seconds."""
    with bench.live(spec) as run:
        step = partial(run.train_step, run.batches.at(0), lr=1e-4)
        first = bench.seconds(step)
        seconds = bench.milliseconds(step, count=5 if bench.small else 10) / 1e3
    costs, images = cost_on(spec, bench.device.type), spec.train.batch
    flops = costs.train_flops / spec.train.steps
    row: dict[str, Any] = {"model": size, "variant": name, "batch": images, "ms": 1e3 * seconds}
    row |= {"images_s": images / seconds, "TFLOPs": flops / seconds / 1e12}
    if bench.peak:
        row |= {"MFU, executed": flops / seconds / bench.peak}
        row["GB"] = torch.cuda.max_memory_allocated() / 1e9
        row["GB predicted"] = costs.memory_bytes / 1e9
    bench.say("step", **row, first_step_s=first, **_kernels(bench, spec))
    return seconds


def _kernels(bench: Bench, spec: RunSpec) -> dict[str, str | None]:
    """Return what computes attention of blocks without and with a mask, and of the fp32 block."""
    m, dtype = spec.model, torch.bfloat16
    shape = 2, m.heads, spec.tokens, m.width // m.heads
    x = torch.empty(shape, dtype=dtype, device=bench.device, requires_grad=True)
    seen = torch.ones(2, 1, 1, spec.tokens, dtype=torch.bool, device=bench.device)
    names = {
        kind: SDPBackend(attend(x, x, x, mask, product=torch._fused_sdp_choice)).name
        for kind, mask in (("attention", None), ("masked attention", seen))
    }
    return {**names, "fp32 attention": attention_kernel(spec, bench.device)}


def profile(bench: Bench) -> None:
    """Where the time of a step goes: by kind of kernel, launches, and idle."""
    for size, routes in (("S", ()), ("B", bench.route)):
        with bench.guarded("profile", model=size), bench.live(bench.spec(size, routes)) as run:
            step = partial(run.train_step, run.batches.at(0), lr=1e-4)
            ms = bench.milliseconds(step)
            with torch.profiler.profile() as seen:
                bench.seconds(step)
            table = seen.key_averages().table(sort_by="self_device_time_total", row_limit=60)
            (bench.out / f"profile_{size}.txt").write_text(table)
            bench.say("profile", model=size, ms=ms, **_by_kind(seen.events(), ms))


def _by_kind(events: Iterable[Any], ms: float) -> dict[str, float]:
    """Return the milliseconds of the kernels of each kind, how many there are, and idle ones."""
    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    spent: dict[str, float] = collections.defaultdict(float)
    for kernel in kernels:
        name = kernel.name.lower()
        kinds = (kind for kind, parts in KINDS.items() if any(part in name for part in parts))
        spent[f"{next(kinds, 'elementwise')} ms"] += kernel.self_device_time_total / 1e3
    return {**spent, "idle_ms": max(ms - sum(spent.values()), 0.0), "launches": len(kernels)}
