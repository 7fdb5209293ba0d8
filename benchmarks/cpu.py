"""The limit of this CPU and what a training step makes of it: the rows of `docs/performance.md`.

    python benchmarks/cpu.py --out benchmarks/performance_cpu.jsonl [--models tiny S] [--rounds 9]
    python benchmarks/performance.py benchmarks/performance_cpu.jsonl docs/performance.md

One thread; times are its own. The rates of this CPU are measured beside the steps. Where the time
of a step goes is taken from torch's profiler, as shares of its operations' own time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import step
import torch
import torch.nn.functional as F

from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder

CPU = torch.device("cpu")
IMAGES = {"tiny": (16, 256), "S": (4, 16)}  # a step: few, as on a laptop, and enough for a rate
STEPS = 3  # that are profiled
# Patterns of the names of operations; the first that fits counts.
KINDS = {
    "attention": r"scaled_dot_product",
    "matrix products": r"^aten::(mm|addmm|bmm|\w*convolution\w*)$",
    "optimizer and EMA": r"[Aa]dam[wW]|lerp_",
    "copies and casts": r"^aten::(copy_|_to_copy|cat|fill_|zero_|gather|scatter)$",
    "elementwise and norms": (
        r"^aten::(native_layer_norm|gelu|silu|mul|add|addcmul|sum|div|sub|pow|sqrt|exp)(_backward)?_?$"
    ),
}
OTHER = "dispatch, autograd, Python"


def best(action: Callable[[], object], count: int = 9) -> float:
    """Return the least seconds of some calls: what this machine can do."""
    seconds = []
    for _ in range(count):
        started = time.thread_time()
        action()
        seconds.append(time.thread_time() - started)
    return min(seconds)


def rates() -> list[dict[str, Any]]:
    """Return the rates of copies and of the products of S/2 with 1,024 rows."""
    source = torch.ones(2**26, dtype=torch.uint8)
    copy = torch.empty_like(source)
    gb_s = 2 * source.numel() / best(lambda: copy.copy_(source)) / 1e9
    rows: list[dict[str, Any]] = [{"what": "copy", "GB_s": gb_s}]
    for layer, (n, k) in {"qkv": (1152, 384), "fc1": (1536, 384), "fc2": (384, 1536)}.items():
        x, w = torch.randn(1024, k), torch.randn(n, k)
        work = 2 * 1024 * n * k / 1e9
        x16, w16 = x.bfloat16(), w.bfloat16()
        said = {"fp32 GFLOP_s": work / best(lambda x=x, w=w: F.linear(x, w))}
        said["bf16 by torch GFLOP_s"] = work / best(lambda x=x16, w=w16: F.linear(x, w), 3)
        rows.append({"what": "product", "model": "S", "rows": 1024, "layer": layer, **said})
    return rows


def split(model: str, precision: str, rate: float) -> dict[str, Any]:
    """Return the shares of a step's time by kind of operation, and the calls of operations."""
    run = step.spec(model, step.MODELS[model][1], precision, rate)
    with tempfile.TemporaryDirectory() as folder:
        live = Trainer(run, RunFolder(Path(folder)), CPU)
        ours = step.our_step(live)
        for _ in range(3):
            ours()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            for _ in range(STEPS):
                ours()
        draws = best(lambda: live.batches.at(live.step))
        whole = best(ours, 5)
    spent: Counter[str] = Counter()
    for event in seen.key_averages():
        spent[_kind(event.key)] += event.self_cpu_time_total
    total = sum(spent.values())
    shares = {f"{kind} %": 100 * spent[kind] / total for kind in (*KINDS, OTHER)}
    calls = sum(event.count for event in seen.key_averages() if event.key.startswith("aten::"))
    said = {"model": model, "precision": precision, "run": "routed" if rate else "dense"}
    return {
        "what": "split",
        **said,
        **shares,
        "draws %": 100 * draws / whole,
        "calls": calls // STEPS,
    }


def _kind(name: str) -> str:
    """Return the kind of an operation of the profiler."""
    return next((kind for kind, words in KINDS.items() if re.search(words, name)), OTHER)


def steps(model: str, precision: str, images: int, rounds: int) -> list[dict[str, Any]]:
    """Return a step's times beside the plain DiT's, what routing gains, and its rate."""
    row = step.measure(model, precision, 0.5, images, rounds, CPU)
    names = {"what": "against plain", "model": model, "precision": precision, "images": images}
    wanted = ("dense ms", "routed ms", "over plain, dense", "over plain, routed")
    rows = [{**names, **{key: row[key] for key in wanted}}]
    gain = {key: row[key] for key in ("speed-up", "predicted", "reached")}
    rows.append({**names, "what": "speed-up", **gain})
    executed = {f"{kind} GFLOP_s": row[f"{kind} GFLOP/s"] for kind in ("dense", "routed")}
    return [*rows, {**names, "what": "rate", **executed}]


def main() -> None:
    """Measure; every result is written as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=("tiny", "S"), default=["tiny", "S"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("rates", "split", "steps"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    path: Path = options.out

    def add(found: list[dict[str, Any]]) -> None:
        with path.open("a") as file:
            file.writelines(json.dumps(_rounded(row)) + "\n" for row in found)

    if not path.exists():
        add([_device()])
    if options.only in (None, "rates"):
        add(rates())
    for model in options.models:
        for precision in options.precisions:
            if options.only in (None, "split"):
                add([split(model, precision, rate) for rate in (0, 0.5)])
            if options.only in (None, "steps"):
                for images in IMAGES[model]:
                    add(steps(model, precision, images, options.rounds))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with four digits of each number."""
    return json.loads(json.dumps(row), parse_float=lambda text: float(f"{float(text):.4g}"))


def _device() -> dict[str, Any]:
    name = str(torch.cpu.get_capabilities().get("cpu_name", platform.machine()))
    return {"what": "device", "name": f"{name}, one thread", "torch": torch.__version__}


if __name__ == "__main__":
    main()
