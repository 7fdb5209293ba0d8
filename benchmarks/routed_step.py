"""How much of the FLOP-predicted speed-up a routed training step reaches.

    python benchmarks/routed_step.py [--device cuda] [--rounds 5] [--json FILE]

Dense and routed steps of the real training code alternate, so that drift of the machine hits both;
the medians are compared. On a CPU the published sizes run with few images a step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tread_lab.engine.cost.training import cost
from tread_lab.engine.device import peak_flops, pick
from tread_lab.engine.live_run import LiveRun
from tread_lab.records.lab import RunFolder
from tread_lab.specs import RunSpec, decode

# name -> (model, images a step on a CPU, on a GPU). The published sizes run with patch 1 on
# the embedded 16x16 images: 256 tokens, as DiT-*/2 has on ImageNet-256 latents.
MODELS: dict[str, tuple[str | dict[str, int], int, int]] = {
    "tiny": ({"depth": 12, "width": 32, "heads": 2}, 16, 256),
    "S, 256 tokens": ({"depth": 12, "width": 384, "heads": 6, "patch": 1}, 4, 256),
    "B, 256 tokens": ({"depth": 12, "width": 768, "heads": 12, "patch": 1}, 0, 256),
    "XL, 256 tokens": ({"depth": 28, "width": 1152, "heads": 16, "patch": 1}, 0, 64),
}


def spec(model: Any, batch: int, routes: list[Any], device: torch.device) -> RunSpec:
    """A run on the embedded images: only shapes matter for the time of a step."""
    tree: dict[str, Any] = {"model": model, "routes": routes, "train": {"batch": batch}}
    tree["precision"] = "fp32" if device.type == "cpu" else "bf16"
    return decode(RunSpec, tree)


def step_seconds(runs: list[LiveRun], rounds: int, device: torch.device) -> list[float]:
    """The median step of every run, the runs taking turns."""
    seconds: list[list[float]] = [[] for _ in runs]
    batches = [run.batches.at(0) for run in runs]
    for turn in range(rounds + 2):
        for k, run in enumerate(runs):
            _wait(device)
            started = time.perf_counter()
            run.optimise(batches[k], lr=1e-4)
            _wait(device)
            if turn >= 2:
                seconds[k].append(time.perf_counter() - started)
    return [statistics.median(times) for times in seconds]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(name: str, rate: float, rounds: int, device: torch.device) -> dict[str, float | str]:
    """Measured and predicted speed-up of 2->8 or 2->B-4 at one rate."""
    model, on_cpu, on_gpu = MODELS[name]
    batch = on_gpu if device.type == "cuda" else on_cpu
    dense = spec(model, batch, [], device)
    routed = spec(model, batch, [{"start": 2, "end": "B-4", "rate": rate}], device)
    with tempfile.TemporaryDirectory() as folder:
        runs = [LiveRun(s, RunFolder(Path(folder) / str(k)), device) for k, s in
                enumerate((dense, routed))]  # fmt: skip
        slow, fast = step_seconds(runs, rounds, device)
    predicted = cost(routed).speedup
    flops = cost(dense).train_flops / dense.train.steps
    found: dict[str, float | str] = {
        "model": name, "tokens": dense.tokens, "batch": batch, "rate": rate,
        "dense ms": 1e3 * slow, "routed ms": 1e3 * fast, "speed-up": slow / fast,
        "predicted": predicted, "ratio": slow / fast / predicted,
        "dense GFLOP/s": flops / slow / 1e9,
    }  # fmt: skip
    peak = peak_flops(device)
    return found | ({"dense MFU": flops / slow / peak} if peak else {})


def main() -> None:
    """Measure, print, and write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = pick(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = []
    for name, (_, on_cpu, _) in MODELS.items():
        if device.type == "cpu" and not on_cpu:
            continue
        for rate in options.rates:
            rows.append(measure(name, rate, options.rounds, device))
            print(", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}"
                            for k, v in rows[-1].items()), flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
