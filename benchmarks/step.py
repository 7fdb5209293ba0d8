"""A training step, dense and routed: against a plain DiT, and against the FLOPs it executes.

    python benchmarks/step.py [--device cuda] [--models tiny S] [--images 4 16] [--rounds 9]
                              [--json FILE]

All steps of a model take turns in one process, so that drift of the machine hits each of them. A
ratio is the median of the ratios of the rounds, with the order statistics that hold it in 95% of
repetitions. A step is whole: its draws, the copy to the device, forward and backward pass,
optimizer and EMA. On a CPU the published sizes run with few images a step on one thread, and its
time is that thread's own, which other processes do not add to.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from plain_dit import PlainDiT, PlainRun

from tread_lab.config import RunSpec, decode
from tread_lab.cost.training import cost
from tread_lab.records.run_folder import RunFolder
from tread_lab.train.device import peak_flops, pick
from tread_lab.train.trainer import Trainer

# name -> ((depth, width, heads, patch), images a step on a CPU, on a GPU). The published sizes run
# with patch 1 on the embedded 16x16 images: 256 tokens, as DiT-*/2 has on ImageNet-256 latents.
MODELS: dict[str, tuple[tuple[int, int, int, int], int, int]] = {
    "tiny": ((12, 32, 2, 2), 16, 256),
    "S": ((12, 384, 6, 1), 4, 256),
    "B": ((12, 768, 12, 1), 2, 256),
    "XL": ((28, 1152, 16, 1), 0, 64),
}
Step = Callable[[], None]
Times = list[float]
Ratio = tuple[float, float, float]  # median, and the ends of its interval
Row = dict[str, float | str | Ratio]


def spec(model: str, batch: int, precision: str, rate: float) -> RunSpec:
    """Return a run on the embedded images: only shapes matter for the time of a step."""
    shape = dict(zip(("depth", "width", "heads", "patch"), MODELS[model][0]))
    routes = [{"start": 2, "end": "B-4", "rate": rate}] if rate else []
    tree = {"model": shape, "routes": routes, "train": {"batch": batch}, "precision": precision}
    return decode(RunSpec, tree)


def our_step(run: Trainer) -> Step:
    """Return the step of a training run of tread-lab, as `engine.train` makes it."""

    def step() -> None:
        run.train_step(run.batches.at(run.step), lr=1e-4)

    return step


def plain_step(run: RunSpec, device: torch.device) -> Step:
    """Return the step of a plain DiT of the same shape on images that lie in memory."""
    route = run.routes[0] if run.routes else None
    span = (route.blocks[0], route.blocks[-1], route.rate) if route else None
    model = run.model
    network = PlainDiT(model.depth, model.width, model.heads, model.patch, route=span)
    plain = PlainRun(network, device, run.precision)
    x, y = torch.randn(run.train.batch, 1, 16, 16), torch.arange(run.train.batch) % 10
    return lambda: plain.step(x, y)


def step_seconds(steps: dict[str, Step], rounds: int, device: torch.device) -> dict[str, Times]:
    """Return the times of every step; they take turns, two rounds of them to warm up."""
    seconds: dict[str, Times] = {name: [] for name in steps}
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    for turn in range(rounds + 2):
        for name, step in steps.items():
            _wait(device)
            started = clock()
            step()
            _wait(device)
            if turn >= 2:
                seconds[name].append(clock() - started)
    return seconds


def ratio(over: Times, under: Times, scale: float = 1.0) -> Ratio:
    """Return the median ratio of paired times with its interval at 95%, by order statistics."""
    ratios = sorted(a / b / scale for a, b in zip(over, under, strict=True))
    n = len(ratios)
    tails = [2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n // 2)]
    cut = max(sum(tail <= 0.05 for tail in tails) - 1, 0)  # of each end: 1 of 9 rounds, 5 of 20
    return statistics.median(ratios), ratios[cut], ratios[-1 - cut]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    model: str, precision: str, rate: float, batch: int, rounds: int, device: torch.device
) -> Row:
    """Return the times of one model in one precision, dense and with 2->B-4 at one rate."""
    specs = {
        "dense": spec(model, batch, precision, 0),
        "routed": spec(model, batch, precision, rate),
    }
    steps: dict[str, Step] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind, run in specs.items():
            steps[kind] = our_step(Trainer(run, RunFolder(Path(folder) / kind), device))
            steps[f"plain {kind}"] = plain_step(run, device)
        times = step_seconds(steps, rounds, device)
    took = {kind: statistics.median(seconds) for kind, seconds in times.items()}
    predicted = cost(specs["routed"]).speedup
    flops = {kind: cost(run).train_flops / run.train.steps for kind, run in specs.items()}
    row: Row = {"model": model, "precision": precision, "batch": batch, "rate": rate}
    row |= {f"{kind} ms": 1e3 * seconds for kind, seconds in took.items()}
    row |= {f"over plain, {kind}": ratio(times[f"plain {kind}"], times[kind]) for kind in specs}
    row |= {"speed-up": ratio(times["dense"], times["routed"]), "predicted": predicted}
    row["reached"] = ratio(times["dense"], times["routed"], predicted)
    row |= {f"{kind} GFLOP/s": flops[kind] / took[kind] / 1e9 for kind in specs}
    if peak := peak_flops(device):
        row |= {f"{kind} MFU": flops[kind] / took[kind] / peak for kind in specs}
    return row


def short(value: float | str | Ratio) -> str:
    """Return a number with three digits, and a ratio with its interval."""
    if isinstance(value, tuple):
        return "{:.3g} [{:.3g}, {:.3g}]".format(*value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["tiny", "S"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5])
    parser.add_argument("--images", type=int, nargs="+", help="a step (by model and device)")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = pick(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = []
    for model, precision, rate in itertools.product(
        options.models, options.precisions, options.rates
    ):
        for batch in options.images or [MODELS[model][2 if device.type == "cuda" else 1]]:
            rows.append(measure(model, precision, rate, batch, options.rounds, device))
            print(", ".join(f"{k} {short(v)}" for k, v in rows[-1].items()), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
