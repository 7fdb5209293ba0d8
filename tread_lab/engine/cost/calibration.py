"""How long things take on this device: a few real steps and forward passes, then arithmetic."""

from __future__ import annotations

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

from tread_lab.engine.cost.speed import Speed, fitted_step, step_flops
from tread_lab.engine.cost.training import FLOPS_PER_MAC, cost
from tread_lab.engine.device import usable_cpus
from tread_lab.engine.system import systems_of
from tread_lab.engine.trainer import Trainer
from tread_lab.records.run_folder import RunFolder
from tread_lab.sampling.generate import images_a_call
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec

# A step below this many FLOPs takes well under a second on any device worth training on.
AFFORDABLE_FLOPS = 2e10
STEPS, WARM = 6, 2
_GPU_SECONDS = 0.5  # of a trial step where the device's rate is known
# Threads that wait for each other shall sleep. By default they spin, which takes several times the
# CPU time of a step where other programs have the CPUs.
_PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
_LARGE = 128  # images of the larger one of two forward passes, if they are affordable


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
    """Time a few steps and passes of each run, in as many processes at once as there are slots.

    Slots share the caches and the memory of a machine, so that one alone would be faster. Where
    they have more threads than this process may use CPUs, they take turns. What other programs
    take of a CPU does not count; `Speed.load` says how much that is. A GPU is timed by one process
    of its own: what it has cached there would stay with this one, beside the runs.

    Args:
        threads: of each process.

    Raises:
        RuntimeError: a GPU could not be timed.
    """
    torch.set_num_threads(threads)
    on_cpu = device.type == "cpu"
    slots = slots if on_cpu else 1
    if on_cpu and slots == threads == 1:
        speeds = [measure(spec, device) for spec in specs]
    else:
        try:
            speeds = _in_processes(specs, device, slots, threads)
        except (OSError, ValueError) as error:  # a slot did not answer
            if not on_cpu:
                raise RuntimeError(f"{device} cannot be timed") from error
            speeds = [measure(spec, device) for spec in specs]
    turns = max(slots * threads / usable_cpus(), 1.0) if on_cpu else 1.0
    return [speed.in_turns(turns) for speed in speeds]


def _in_processes(
    specs: Sequence[RunSpec], device: torch.device, slots: int, threads: int
) -> list[Speed]:
    """Return the mean speeds of so many processes; all begin once all have their imports."""
    command = [sys.executable, "-c", "from tread_lab.engine.cost.calibration import slot; slot()"]
    command += [str(threads), str(device)]
    pipe = subprocess.PIPE
    streams: dict[str, Any] = {"stdin": pipe, "stdout": pipe, "stderr": subprocess.DEVNULL}
    streams["env"] = {**os.environ, **_PASSIVE}
    started = [subprocess.Popen(command, text=True, **streams) for _ in range(slots)]
    try:
        pipes = [(p.stdin, p.stdout) for p in started if p.stdin and p.stdout]
        for line in (json.dumps([encode(spec) for spec in specs]), "go"):
            for stdin, _ in pipes:
                stdin.write(line + "\n")
                stdin.flush()
            answers = [json.loads(stdout.readline()) for _, stdout in pipes]
    finally:
        for process in started:
            process.kill()
            process.communicate()  # waits, and closes its pipes whatever is in them
    return [Speed(*(sum(column) / slots for column in zip(*seen))) for seen in zip(*answers)]


def slot() -> None:
    """One slot of `calibrate`: specs on stdin, their number; a line on stdin, their times."""
    torch.set_num_threads(int(sys.argv[1]))
    specs = [decode(RunSpec, tree) for tree in json.loads(sys.stdin.readline())]
    print(len(specs), flush=True)
    sys.stdin.readline()
    speeds = [dataclasses.astuple(measure(spec, torch.device(sys.argv[2]))) for spec in specs]
    print(json.dumps([times[:6] for times in speeds]), flush=True)


def measure(spec: RunSpec, device: torch.device) -> Speed:
    """Time steps dense and with half of the tokens routed, and passes of few and many images."""
    half = (RouteSpec(start=0, end=spec.model.depth - 1, rate=0.5, selection="rows"),)
    dense = spec.dense()
    for system in systems_of(dense):
        dense = system.timed_as(dense)
    routed = dataclasses.replace(dense, routes=half)
    image = FLOPS_PER_MAC * cost(dense).dense.network
    large = _LARGE if device.type == "cuda" else min(_LARGE, max(8, int(AFFORDABLE_FLOPS / image)))
    small = large // 8
    with tempfile.TemporaryDirectory() as lab:
        runs = Path(lab) / "runs"
        with Trainer(dense, RunFolder(runs / "dense"), device) as run:
            timed = [_median(_step(run), STEPS, device)]
            timed += [_median(_pass(run, count, device), STEPS, device) for count in (small, large)]
        with Trainer(routed, RunFolder(runs / "routed"), device) as run:
            timed.append(_median(_step(run), STEPS, device))
    own, walls = zip(*timed)
    slow, few, many, fast = own
    overhead, per_flop = fitted_step([(step_flops(dense), slow), (step_flops(routed), fast)])
    per_image = max(many - few, 0.2 * many) / (large - small)
    call, load = max(few - small * per_image, 0.0), sum(walls) / sum(own)
    return Speed(overhead, per_flop, call, per_image / image, load, images_a_call(device.type))


def _step(run: Trainer) -> Callable[[], None]:
    """Return a step on batches that are drawn as training draws them: for a GPU ahead of it."""
    batches = run.batches.stream(0, STEPS + WARM)
    return lambda: run.train_step(next(batches), lr=0.0)


def _pass(run: Trainer, count: int, device: torch.device) -> Callable[[], None]:
    data = run.spec.data
    x_BCHW = torch.randn(count, data.channels, data.size, data.size, device=device)
    t_B, y_B = torch.full((count,), 0.5, device=device), torch.zeros(count, device=device).long()

    def forward() -> None:
        with torch.no_grad():
            run.network(x_BCHW, t_B, y_B, None)

    return forward


def _median(action: Callable[[], None], count: int, device: torch.device) -> tuple[float, float]:
    """Return the median seconds of `count` times after some to warm up: own ones, and by the wall.

    On a CPU the own ones are CPU seconds of this thread, which has its share in all products of a
    step and does all else by itself: the seconds of an idle machine, whatever the threads, if
    these sleep while they wait. On a GPU both are of the wall clock.
    """
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    own, walls = [], []
    for _ in range(count + WARM):
        wall, started = time.perf_counter(), clock()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        own.append(clock() - started)
        walls.append(time.perf_counter() - wall)
    wall = sorted(walls[WARM:])[count // 2]
    return sorted(own[WARM:])[count // 2] or wall, wall  # a coarse clock may see no time pass
