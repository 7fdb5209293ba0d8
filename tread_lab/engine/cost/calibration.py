"""How long things take on this device: a few real steps and forward passes, then arithmetic."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from tread_lab.engine.cost.speed import Speed, fitted_step, step_flops
from tread_lab.engine.cost.training import FLOPS_PER_MAC, cost
from tread_lab.engine.live_run import LiveRun
from tread_lab.records.lab import RunFolder
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec

# A step below this many FLOPs takes well under a second on any device worth training on.
AFFORDABLE_FLOPS = 2e10
STEPS = 6
_GPU_SECONDS = 0.5  # of a trial step where the device's rate is known
_LARGE = 128  # images of the larger one of two forward passes, if they are affordable


def trial_batch(spec: RunSpec, rate: float | None = None) -> int:
    """Return the images of a dense trial step that takes well under a second; 0 if one is too many.

    Args:
        rate: FLOP/s of the device, `None` where they are not known.
    """
    most = AFFORDABLE_FLOPS if rate is None else max(rate * _GPU_SECONDS, AFFORDABLE_FLOPS)
    return min(spec.train.batch, int(most / cost(spec.dense()).train_flops_per_image))


def calibrate(
    specs: Sequence[RunSpec], device: torch.device, *, slots: int = 1, threads: int = 1
) -> list[Speed]:
    """Time a few steps and passes of each run, in as many processes at once as there are slots.

    Lanes share the caches and the memory of a machine, so that one alone would be faster.

    Args:
        threads: of each process.
    """
    torch.set_num_threads(threads)
    if slots == 1 or device.type != "cpu":
        return [measure(spec, device) for spec in specs]
    command = [sys.executable, "-c", "from tread_lab.engine.cost.calibration import slot; slot()"]
    command.append(str(threads))
    pipe = subprocess.PIPE
    streams: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": subprocess.DEVNULL}
    started = [subprocess.Popen(command, text=True, **streams) for _ in range(slots)]
    try:
        by_slot = _together(started, json.dumps([encode(spec) for spec in specs]))
    except (OSError, ValueError):  # a slot did not answer; one process tells most of it
        return [measure(spec, device) for spec in specs]
    finally:
        for process in started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with contextlib.suppress(OSError):  # unsent text to a process that was killed
                    stream.close()
    return [Speed(*(sum(column) / slots for column in zip(*seen))) for seen in zip(*by_slot)]


def _together(processes: Sequence[subprocess.Popen[str]], specs: str) -> list[list[list[float]]]:
    """Return the numbers of every process for every spec; all begin once all have their imports."""
    for line in (specs, "go"):
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes if process.stdout is not None]
    return [json.loads(answer) for answer in answers]


def slot() -> None:
    """One slot of `calibrate`: specs on stdin, `ready`; a line on stdin, the numbers."""
    torch.set_num_threads(int(sys.argv[1]))
    specs = [decode(RunSpec, tree) for tree in json.loads(sys.stdin.readline())]
    print("ready", flush=True)
    sys.stdin.readline()
    speeds = [dataclasses.astuple(measure(spec, torch.device("cpu"))) for spec in specs]
    print(json.dumps(speeds), flush=True)


def measure(spec: RunSpec, device: torch.device) -> Speed:
    """Time steps dense and with half of the tokens routed, and passes of few and many images."""
    half = (RouteSpec(start=0, end=spec.model.depth - 1, rate=0.5, selection="rows"),)
    dense = dataclasses.replace(spec.dense(), init_from=None, captions=None)
    routed = dataclasses.replace(dense, routes=half)
    image = FLOPS_PER_MAC * cost(dense).dense_macs
    large = _LARGE if device.type == "cuda" else min(_LARGE, max(8, int(AFFORDABLE_FLOPS / image)))
    small = large // 8
    with tempfile.TemporaryDirectory() as folder:
        with LiveRun(dense, RunFolder(Path(folder)), device) as run:
            slow = _median(_step(run, device), STEPS)
            passes = [_median(_pass(run, count, device), STEPS) for count in (small, large)]
        with LiveRun(routed, RunFolder(Path(folder) / "routed"), device) as run:
            fast = _median(_step(run, device), STEPS)
    overhead, per_flop = fitted_step([(step_flops(dense), slow), (step_flops(routed), fast)])
    per_image = max(passes[1] - passes[0], 0.2 * passes[1]) / (large - small)
    return Speed(overhead, per_flop, max(passes[0] - small * per_image, 0.0), per_image / image)


def _step(run: LiveRun, device: torch.device) -> Callable[[], None]:
    def step() -> None:
        run.optimise(run.batches.at(run.step), lr=0.0)
        _wait(device)

    return step


def _pass(run: LiveRun, count: int, device: torch.device) -> Callable[[], None]:
    data = run.spec.data
    x_BCHW = torch.randn(count, data.channels, data.size, data.size, device=device)
    t_B, y_B = torch.full((count,), 0.5, device=device), torch.zeros(count, device=device).long()

    def forward() -> None:
        with torch.no_grad():
            run.network(x_BCHW, t_B, y_B, None)
        _wait(device)

    return forward


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _median(action: Callable[[], None], count: int) -> float:
    """Return the median of `count` times, after two to warm up."""
    seconds = []
    for _ in range(count + 2):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds[2:])[count // 2]
