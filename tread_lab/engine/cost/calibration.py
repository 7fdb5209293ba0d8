"""How long a training step takes on this device: a few real steps, then arithmetic."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tread_lab.engine.cost.speed import Speed, fitted, fp32_block_on, step_flops
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import systems_of
from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.errors import Unavailable
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec

# A step below this many FLOPs takes well under a second on any device worth training on.
AFFORDABLE_FLOPS = 2e10
STEPS, WARM = 6, 2
_GPU_SECONDS = 0.5  # of a trial step where the device's rate is known
# Threads that wait for each other shall sleep. By default they spin, which takes several times the
# CPU time of a step where other programs have the CPUs.
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}


def trial_batch(spec: RunSpec, rate: float | None = None) -> int:
    """Return the images of a dense trial step that takes well under a second; 0 if one is too many.

    Args:
        rate: FLOP/s of the device, `None` where they are not known.
    """
    most = AFFORDABLE_FLOPS if rate is None else max(rate * _GPU_SECONDS, AFFORDABLE_FLOPS)
    return min(spec.train.batch, int(most / cost(spec.dense()).step.flops))


def calibrate(
    specs: Sequence[RunSpec], device: torch.device, *, slots: int = 1, threads: int = 1
) -> list[Speed]:
    """Time a few steps of each run.

    Slots share the caches and the memory of a machine, so that one alone would be faster: as many
    processes do the same, and one is heard. What other programs take of a CPU does not count. A GPU
    is timed by a process of its own: what it has cached there would stay with this one, beside the
    runs.

    Args:
        threads: of each process.

    Raises:
        Unavailable: a GPU could not be timed.
    """
    on_cpu = device.type == "cpu"
    if not on_cpu or slots > 1 or threads > 1:
        try:
            return _timed_beside_others(specs, device, slots if on_cpu else 1, threads)
        except (OSError, json.JSONDecodeError) as error:  # no process answers
            if not on_cpu:
                raise Unavailable(f"{device} cannot be timed") from error
    torch.set_num_threads(threads)
    return [measure(spec, device) for spec in specs]


def _timed_beside_others(
    specs: Sequence[RunSpec], device: torch.device, slots: int, threads: int
) -> list[Speed]:
    words = [sys.executable, "-m", "tread_lab.engine.cost.calibration", str(device), str(threads)]
    words.append(json.dumps([encode(spec) for spec in specs]))
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    streams["env"] = {**os.environ, **_PASSIVE}
    with contextlib.ExitStack() as ends:  # waits for each process and closes its pipe
        started = [
            ends.enter_context(subprocess.Popen(words, text=True, **streams)) for _ in range(slots)
        ]
        try:
            return [Speed(*times) for times in json.loads(started[0].communicate()[0])]
        finally:
            for process in started:
                process.kill()


def measure(spec: RunSpec, device: torch.device) -> Speed:
    """Time steps dense and with half of the tokens routed."""
    half = (RouteSpec(start=0, end=spec.model.depth - 1, rate=0.5, selection="rows"),)
    dense = spec.dense()
    for system in systems_of(dense):
        dense = system.timed_as(dense)
    steps, fp32_block = [], fp32_block_on(device.type)
    for timed in (dense, dataclasses.replace(dense, routes=half)):
        with tempfile.TemporaryDirectory() as folder:
            with Trainer(timed, RunFolder(Path(folder)), device) as run:
                steps.append((step_flops(timed, fp32_block), _median(_step(run), device)))
    return dataclasses.replace(fitted(steps), fp32_block=fp32_block)


def _step(run: Trainer) -> Callable[[], None]:
    """Return a step on batches that are drawn as training draws them: for a GPU ahead of it."""
    batches = run.batches.stream(0, STEPS + WARM)
    return lambda: run.train_step(next(batches), lr=0.0)


def _median(action: Callable[[], None], device: torch.device) -> float:
    """Return the median seconds of a step, after some to warm up.

    On a CPU they are CPU seconds of this thread, which has its share in all products of a step and
    does all else by itself: the seconds of an idle machine, whatever the threads, if these sleep
    while they wait. On a GPU they are of the wall clock.
    """
    seconds = []
    for _ in range(STEPS + WARM):
        wall, own = time.perf_counter(), time.thread_time()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        own, wall = time.thread_time() - own, time.perf_counter() - wall
        # A coarse clock may see no time pass.
        seconds.append(own if device.type == "cpu" and own else wall)
    return sorted(seconds[WARM:])[STEPS // 2]


def slot(device: str, threads: str, specs: str) -> None:
    """One process of `calibrate`: print the times of some specs."""
    torch.set_num_threads(int(threads))
    runs = [decode(RunSpec, tree) for tree in json.loads(specs)]
    print(json.dumps([dataclasses.astuple(measure(run, torch.device(device))) for run in runs]))


if __name__ == "__main__":
    slot(*sys.argv[1:])
