"""How long things will take on this device: a few real steps, dense and routed, then arithmetic."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tread_lab.engine.cost import FLOPS_PER_MAC, cost
from tread_lab.engine.live_run import LiveRun
from tread_lab.engine.sample_cost import call_macs
from tread_lab.records.layout import RunFolder
from tread_lab.spec.evaluation import EvaluationSpec, HeldoutSpec, SamplesSpec
from tread_lab.spec.routes import RouteSpec
from tread_lab.spec.run import RunSpec

# A step below this many FLOPs takes well under a second on any device worth training on.
AFFORDABLE_FLOPS = 2e10
_STEPS = 4


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step: `overhead` plus `per_flop` times its executed FLOPs."""

    overhead: float
    per_flop: float

    def train_seconds(self, spec: RunSpec) -> float:
        """Predicted seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def evaluate_seconds(self, spec: RunSpec, evaluations: Sequence[EvaluationSpec]) -> float:
        """Predicted seconds of the forward passes of all evaluations."""
        passes = [_passes(spec, evaluation) for evaluation in evaluations]
        per_call = self.overhead / 3 / spec.train.batch
        return sum(calls * per_call + flops * self.per_flop for calls, flops in passes)


def affordable(spec: RunSpec) -> bool:
    """Whether a few steps of this run cost next to nothing."""
    return cost(spec.dense()).train_flops / spec.train.steps < AFFORDABLE_FLOPS


def calibrate(spec: RunSpec, device: torch.device) -> Speed:
    """Time a few steps of this run dense and with half of its tokens routed."""
    half = (RouteSpec(start=0, end=spec.model.depth - 1, rate=0.5, selection="rows"),)
    dense = spec.dense()
    routed = dataclasses.replace(dense, routes=half)
    slow, fast = _step_seconds(dense, device), _step_seconds(routed, device)
    flops = [cost(s).train_flops / s.train.steps for s in (dense, routed)]
    per_flop = max(slow - fast, 0.2 * slow) / (flops[0] - flops[1])
    return Speed(overhead=max(slow - per_flop * flops[0], 0.0), per_flop=per_flop)


def _step_seconds(spec: RunSpec, device: torch.device) -> float:
    """The median of a few steps, after two to warm up."""
    with tempfile.TemporaryDirectory() as folder:
        with LiveRun(spec, RunFolder(Path(folder)), device) as run:
            seconds = []
            for step in range(_STEPS + 2):
                started = time.perf_counter()
                run.optimise(run.batches.at(step), lr=0.0)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                seconds.append(time.perf_counter() - started)
    return sorted(seconds[2:])[_STEPS // 2]


def _passes(spec: RunSpec, evaluation: EvaluationSpec) -> tuple[int, int]:
    """Images times network calls of an evaluation, and the FLOPs of all of them."""
    if isinstance(evaluation, SamplesSpec):
        macs, branches = call_macs(spec, evaluation.sampler), evaluation.sampler.guidance.branches
        calls = evaluation.count * len(macs) * len(branches)
        return calls, evaluation.count * FLOPS_PER_MAC * sum(macs)
    twice = isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    calls = evaluation.images * evaluation.levels * (2 if twice else 1)
    return calls, calls * FLOPS_PER_MAC * cost(spec).dense_macs
