"""Four runs on one device at once beside one run alone, with and without MPS."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from gpu_phases.shared import INNER, ROUTE, TINY, Bench

MPS = "nvidia-cuda-mps-control"
RUNS = 4


def measure(bench: Bench) -> None:
    """Time steps of one process and of four, then of four under MPS where it is installed."""
    for served in (False, True) if bench.cuda and shutil.which(MPS) else (False,):
        with bench.guarded("packed", mps=served), _mps() if served else contextlib.nullcontext():
            alone, together = (_milliseconds(bench, count) for count in (1, RUNS))
            gain = RUNS * alone / together
            bench.say("packed", mps=served, alone_ms=alone, together_ms=together, throughput=gain)


@contextlib.contextmanager
def _mps() -> Iterator[None]:
    """Start MPS in a folder of its own, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        names = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        os.environ.update(names)  # processes that are started inherit them
        subprocess.run([MPS, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([MPS], input="quit\n", text=True, check=False)
            for name in names:
                del os.environ[name]


def _milliseconds(bench: Bench, count: int) -> float:
    """Return the mean over processes of a step's median, while all of them make steps."""
    context = multiprocessing.get_context("spawn")
    task = (bench.out, str(bench.device), bench.small)
    with context.Pool(count, _begin, [context.Barrier(count, timeout=60)]) as pool:
        return sum(pool.starmap(_steps, [task] * count, chunksize=1)) / count


_barrier: threading.Barrier  # where the processes wait for each other


def _begin(barrier: threading.Barrier) -> None:
    global _barrier
    _barrier = barrier


def _steps(out: Path, device: str, small: bool) -> float:
    bench = Bench("packed", out, device, small)
    model, routes = (TINY, INNER) if small else ("DiT-S/2", ROUTE)
    with bench.live(bench.spec(model, routes, 4 if small else 64)) as run:
        step = partial(run.train_step, run.batches.at(0), lr=1e-4)
        bench.milliseconds(step, warm=2, count=1)
        _barrier.wait()
        return bench.milliseconds(step, warm=0, count=5 if small else 30)
