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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.training import FLOPS_PER_MAC, cost
from tread_lab.engine.live_run import LiveRun
from tread_lab.records.lab import RunFolder
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.routes import RouteSpec
from tread_lab.specs.run import RunSpec

# A step below this many FLOPs takes well under a second on any device worth training on.
AFFORDABLE_FLOPS = 2e10
FEATURE_SECONDS = 1.5e-3  # an image's features and its share of the statistics
_STEPS = 6
_SMALL, _LARGE = 16, 128  # images of the two forward passes


@dataclass(frozen=True)
class Speed:
    """What takes time on one slot: a fixed part for each call, and a part for each FLOP.

    Attributes:
        overhead, per_flop: seconds of a training step.
        call, per_call_flop: seconds of a forward pass without gradients.
    """

    overhead: float
    per_flop: float
    call: float
    per_call_flop: float

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the predicted seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def evaluate_seconds(self, spec: RunSpec, evaluations: Sequence[EvaluationSpec]) -> float:
        """Return the predicted seconds of all evaluations."""
        return sum(self._evaluation(spec, evaluation) for evaluation in evaluations)

    def _evaluation(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        calls, flops = passes(spec, evaluation)
        features = 0.0
        if isinstance(evaluation, SamplesSpec) and evaluation.metrics:
            features = evaluation.count * FEATURE_SECONDS
        return calls * self.call + flops * self.per_call_flop + features


FLOPS = Speed(overhead=0, per_flop=1, call=0, per_call_flop=1)  # for want of seconds: what it costs


def affordable(spec: RunSpec) -> bool:
    """Return whether a few steps of this run cost next to nothing."""
    return cost(spec.dense()).train_flops_per_image * spec.train.batch < AFFORDABLE_FLOPS


def calibrate(specs: Sequence[RunSpec], device: torch.device, *, slots: int = 1) -> list[Speed]:
    """Time a few steps and passes of each run, in as many processes at once as there are slots.

    Lanes share the caches and the memory of a machine, so that one alone would be faster.
    """
    if slots == 1 or device.type != "cpu":
        return [measure(spec, device) for spec in specs]
    command = [sys.executable, "-c", "from tread_lab.engine.cost.calibration import slot; slot()"]
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
    torch.set_num_threads(1)
    specs = [decode(RunSpec, tree) for tree in json.loads(sys.stdin.readline())]
    print("ready", flush=True)
    sys.stdin.readline()
    speeds = [dataclasses.astuple(measure(spec, torch.device("cpu"))) for spec in specs]
    print(json.dumps(speeds), flush=True)


def measure(spec: RunSpec, device: torch.device) -> Speed:
    """Time steps dense and with half of the tokens routed, and passes of few and many images."""
    half = (RouteSpec(start=0, end=spec.model.depth - 1, rate=0.5, selection="rows"),)
    dense = dataclasses.replace(spec.dense(), init_from=None)
    routed = dataclasses.replace(dense, routes=half)
    with tempfile.TemporaryDirectory() as folder:
        with LiveRun(dense, RunFolder(Path(folder)), device) as run:
            slow = _median(_step(run, device), _STEPS)
            passes = [_median(_pass(run, count, device), _STEPS) for count in (_SMALL, _LARGE)]
        with LiveRun(routed, RunFolder(Path(folder) / "routed"), device) as run:
            fast = _median(_step(run, device), _STEPS)
    flops = [cost(s).train_flops_per_image * s.train.batch for s in (dense, routed)]
    per_flop = min(
        max((slow - fast) / (flops[0] - flops[1]), 0.2 * slow / flops[0]), slow / flops[0]
    )
    per_image = max(passes[1] - passes[0], 0.2 * passes[1]) / (_LARGE - _SMALL)
    return Speed(
        overhead=slow - per_flop * flops[0],
        per_flop=per_flop,
        call=max(passes[0] - _SMALL * per_image, 0.0),
        per_call_flop=per_image / (FLOPS_PER_MAC * cost(dense).dense_macs),
    )


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
