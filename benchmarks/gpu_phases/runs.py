"""Whole runs: is one repeated and resumed bit for bit, and do two on a device gain?"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
from functools import partial
from pathlib import Path

import torch

from gpu_phases.shared import INNER, Bench
from tread_lab.config import RunSpec
from tread_lab.train.trainer import Trainer

RUNS = 2


def repeats(bench: Bench) -> None:
    """Compare the weights of runs of 1,024 tokens to the last bit."""
    model = {"depth": 4, "width": 256, "heads": 4, "patch": 2}
    ways = [("none", False), ("none", True), *([("blocks", False)] if bench.cuda else [])]
    for compiler, deterministic in ways:
        said = {"precision": bench.half, "compile": compiler, "deterministic": deterministic}
        with bench.guarded("repeats", **said):
            execution = {"compile": compiler, "deterministic": deterministic}
            side = 16 if bench.small else 64
            spec = bench.spec(model, INNER, 32, side=side, execution=execution)
            first, *others = (_weights(bench, spec, cut) for cut in (8, 8, 4))
            repeated, resumed = (all(map(torch.equal, first, other)) for other in others)
            bench.say("repeats", **said, tokens=spec.tokens, repeated=repeated, resumed=resumed)


def _weights(bench: Bench, spec: RunSpec, cut: int) -> list[torch.Tensor]:
    """Return the weights after eight steps, interrupted after `cut` of them."""
    with tempfile.TemporaryDirectory() as folder:
        run = bench.live(spec, Path(folder))
        for step in range(8):
            if step == cut:
                run.save()
                run = Trainer(spec, run.folder, bench.device)
                run.resume()
            run.train_step(run.batches.at(step), lr=1e-3)
        return [parameter.detach().clone() for parameter in run.network.parameters()]


_barrier: threading.Barrier  # where the processes wait for each other


def packed(bench: Bench) -> None:
    """Time steps of S/2 in one of two processes while the other waits, then in both."""
    context = multiprocessing.get_context("spawn")
    task = (bench.out, str(bench.device), bench.small)
    with bench.guarded("packed"):
        with context.Pool(RUNS, _begin, [context.Barrier(RUNS, timeout=60)]) as pool:
            rows = [(*task, index) for index in range(RUNS)]
            times = pool.starmap(_steps, rows, chunksize=1)
        alone, together = times[0][0], sum(both for _, both in times) / RUNS
        gain = RUNS * alone / together
        bench.say("packed", runs=RUNS, alone_ms=alone, together_ms=together, throughput=gain)


def _begin(barrier: threading.Barrier) -> None:
    global _barrier
    _barrier = barrier


def _steps(out: Path, device: str, small: bool, index: int) -> tuple[float, float]:
    """Return the milliseconds of a step alone, which the first process measures, and together."""
    bench, alone = Bench("packed", out, device, small=small), 0.0
    with bench.live(bench.spec("S", bench.route)) as run:
        step, count = partial(run.train_step, run.batches.at(0), lr=1e-4), 5 if small else 30
        bench.milliseconds(step, warm=2, count=1)
        _barrier.wait()
        if index == 0:
            alone = bench.milliseconds(step, warm=0, count=count)
        _barrier.wait()
        return alone, bench.milliseconds(step, warm=0, count=count)
