"""The training step: eager and compiled, dense and routed, beside a plain DiT."""

from __future__ import annotations

import collections
import time
from functools import partial
from typing import Any

import torch
from plain_dit import PlainDiT, PlainRun

from gpu_phases.shared import INNER, ROUTE, TINY, Bench
from tread_lab.config import RunSpec
from tread_lab.cost.training import cost
from tread_lab.train.device import cost_on

BATCH = {"S": 256, "B": 256, "XL": 256}
MEMORY = 1.2e11  # bytes that XL needs at 256 images; on a smaller GPU it has 96
EAGER, BLOCKS = {"compile": "none"}, {"compile": "blocks"}
VARIANTS: tuple[tuple[str, bool, str, dict[str, str]], ...] = (
    # name, whether routed, the block after the route, how it is executed
    ("dense, compiled", False, "off", BLOCKS),
    ("routed, compiled", True, "j+1", BLOCKS),
    ("routed, compiled, no fp32 block", True, "off", BLOCKS),
    ("dense", False, "off", EAGER),
    ("routed", True, "j+1", EAGER),
    ("routed, no fp32 block", True, "off", EAGER),
)
# What a kernel's name says of its work; the first that it holds counts.
KINDS = {
    "attention": ("flash", "attention", "sdpa", "fmha", "cudnn_generated"),
    "matrix products": ("gemm", "cutlass", "nvjet", "cublas", "xmma"),
    "optimizer and EMA": ("multi_tensor", "foreach", "adam", "lerp"),
    "copies": ("memcpy", "memset", "copy"),
}


def measure(bench: Bench, size: str) -> None:
    """Time the steps of one published size and compare them with what is predicted."""
    model: Any = TINY if bench.small else f"DiT-{size}/2"
    batch, inner = _batch(bench, size), INNER if bench.small else ROUTE
    seconds: dict[str, float] = {}
    for name, routed, block, how in VARIANTS:
        with bench.guarded("step", model=size, variant=name):
            execution = how if bench.cuda else how | EAGER
            route = inner if routed else ()
            spec = bench.spec(model, route, batch, fp32_block=block, execution=execution)
            seconds[name] = _step(bench, size, name, spec)
            _say_speedup(bench, size, name, seconds, spec)
    for name, routed in (("plain dense", False), ("plain routed", True)):
        with bench.guarded("step", model=size, variant=name):
            spec = bench.spec(model, inner if routed else (), batch)
            seconds[name] = _plain(bench, size, name, spec)
            _say_speedup(bench, size, name, seconds, spec)


def _say_speedup(
    bench: Bench, size: str, name: str, seconds: dict[str, float], spec: RunSpec
) -> None:
    """Write how much faster a routed step is than the dense one of its kind."""
    dense = name.replace("routed", "dense").replace(", no fp32 block", "")
    if spec.routes and dense in seconds:
        predicted, ratio = cost(spec).speedup, seconds[dense] / seconds[name]
        said = {"model": size, "variant": name, "measured": ratio, "predicted": predicted}
        bench.say("speed-up", **said, reached=ratio / predicted)


def _batch(bench: Bench, size: str) -> int:
    if bench.small:
        return 4
    memory = torch.cuda.get_device_properties(0).total_memory
    return BATCH[size] if size != "XL" or memory > MEMORY else 96


def _step(bench: Bench, size: str, name: str, spec: RunSpec) -> float:
    """Time one variant and write it; return its seconds."""
    run = bench.live(spec)
    batch, started = run.batches.at(0), time.perf_counter()
    run.train_step(batch, lr=1e-4)
    bench.wait()
    first = time.perf_counter() - started
    seconds = bench.milliseconds(partial(run.train_step, batch, lr=1e-4)) / 1e3
    _say_step(bench, size, name, spec, seconds, first_step_s=first)
    return seconds


def _plain(bench: Bench, size: str, name: str, spec: RunSpec) -> float:
    """Time the plain DiT of the same shape; return its seconds."""
    m, route = spec.model, spec.routes[0] if spec.routes else None
    span = (route.blocks[0], route.blocks[-1], route.rate) if route else None
    shape = {"channels": 4, "size": 32, "classes": 1000, "route": span}
    network = PlainDiT(m.depth, m.width, m.heads, m.patch, **shape)
    plain = PlainRun(network, bench.device, spec.precision)
    x, y = torch.randn(spec.train.batch, 4, 32, 32), torch.zeros(spec.train.batch).long()
    seconds = bench.milliseconds(partial(plain.step, x, y)) / 1e3
    _say_step(bench, size, name, spec, seconds)
    return seconds


def _say_step(
    bench: Bench, size: str, name: str, spec: RunSpec, seconds: float, **more: float
) -> None:
    """Write a step with its MFU in both conventions, of executed FLOPs and of the dense network's.

    `MFU, executed` is the utilisation of the hardware; `MFU, as if dense` the speed of images.
    """
    costs, images = cost_on(spec, bench.device.type), spec.train.batch
    flops = {"executed": costs.train_flops / spec.train.steps}
    flops["as if dense"] = cost(spec.dense()).train_flops / spec.train.steps
    row: dict[str, Any] = {"model": size, "variant": name, "batch": images, "ms": 1e3 * seconds}
    row |= {"images_s": images / seconds, "TFLOPs": flops["executed"] / seconds / 1e12}
    if bench.peak:
        row |= {f"MFU, {kind}": f / seconds / bench.peak for kind, f in flops.items()}
        row["GB"] = torch.cuda.max_memory_allocated() / 1e9
        row["GB predicted"] = costs.memory_bytes / 1e9
    bench.say("step", **row, **more)


def profile(bench: Bench) -> None:
    """Where the time of a step goes: by kind of kernel, launches, and idle."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if bench.cuda else []
    for compiler in ("none", "blocks") if bench.cuda else ("none",):
        for kind, routes in (("dense", ()), ("routed", INNER if bench.small else ROUTE)):
            with bench.guarded("profile", run=kind, compile=compiler):
                model, execution = TINY if bench.small else "DiT-B/2", {"compile": compiler}
                spec = bench.spec(model, routes, 4 if bench.small else 256, execution=execution)
                run = bench.live(spec)
                batch = run.batches.at(0)
                ms = bench.milliseconds(partial(run.train_step, batch, lr=1e-4))
                with torch.profiler.profile(activities=activities) as seen:
                    run.train_step(batch, lr=1e-4)
                    bench.wait()
                key = "self_cuda_time_total" if bench.cuda else "self_cpu_time_total"
                table = seen.key_averages().table(sort_by=key, row_limit=60)
                (bench.out / f"profile_{kind}_{compiler}.txt").write_text(table)
                if bench.cuda:
                    _say_kernels(bench, seen, ms, run=kind, compile=compiler)


def _say_kernels(bench: Bench, seen: Any, ms: float, **said: str) -> None:
    kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    spent: dict[str, float] = collections.defaultdict(float)
    for kernel in kernels:
        name = kernel.name.lower()
        kinds = (kind for kind, parts in KINDS.items() if any(part in name for part in parts))
        spent[next(kinds, "elementwise")] += kernel.self_device_time_total / 1e3
    busy = sum(spent.values())
    rows = {f"{kind} ms": time for kind, time in sorted(spent.items())}
    bench.say("profile", **said, ms=ms, launches=len(kernels), **rows, idle_ms=max(ms - busy, 0.0))


def host(bench: Bench) -> None:
    """What the host does in a step: its draws, and how long it needs to queue the work."""
    model = TINY if bench.small else "DiT-B/2"
    for kind, routes in (("dense", ()), ("routed", INNER if bench.small else ROUTE)):
        with bench.guarded("host", run=kind):
            run = bench.live(bench.spec(model, routes, 4 if bench.small else 256))
            draws = bench.milliseconds(partial(run.batches.at, 0))
            batch = run.batches.at(0)
            all_ms = bench.milliseconds(partial(run.train_step, batch, lr=1e-4))
            bench.wait()
            started = time.perf_counter()
            run.train_step(batch, lr=1e-4)
            queued = 1e3 * (time.perf_counter() - started)
            bench.wait()
            bench.say("host", run=kind, draws_ms=draws, queued_ms=queued, step_ms=all_ms)
