"""Speed of a device on one kind of run: seconds a call and a FLOP, fitted to measured steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import systems_of
from tread_lab.sampling.generate import IMAGES_A_CALL, images_a_call
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec

FEATURE_SECONDS = 1.5e-3  # an image's features and its share of the statistics
_LEAST = 0.2  # of the time of the costliest step that is taken to scale with its FLOPs
Kind = tuple[object, ...]


@dataclass(frozen=True)
class Speed:
    """What takes time on one slot: a fixed part for each call, and a part for each FLOP.

    Attributes:
        overhead, per_flop: seconds of a training step.
        call, per_call_flop: seconds of a forward pass without gradients.
        images_a_call: images of one call of a sampler on this device.
        load: how many times as long as these seconds it took by the wall clock, since other
            processes had the CPU.
    """

    overhead: float
    per_flop: float
    call: float
    per_call_flop: float
    load: float = 1.0
    images_a_call: float = IMAGES_A_CALL["cpu"]

    @staticmethod
    def of_steps(measured: Sequence[tuple[float, float]], device_type: str = "cpu") -> Speed:
        """Return the speed that steps alone tell: a pass is taken to be a third of a step."""
        overhead, per_flop = fitted_step(measured)
        images = images_a_call(device_type)
        return Speed(overhead, per_flop, overhead / 3, per_flop, images_a_call=images)

    def in_turns(self, turns: float) -> Speed:
        """Return the speed of a slot that has its CPUs for one part in `turns` of the time."""
        return replace(
            self,
            overhead=turns * self.overhead,
            per_flop=turns * self.per_flop,
            call=turns * self.call,
            per_call_flop=turns * self.per_call_flop,
            load=self.load / turns,
        )

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the predicted seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def evaluate_seconds(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        """Return the predicted seconds of an evaluation."""
        calls, flops = passes(spec, evaluation, self.images_a_call)
        features = 0.0
        if isinstance(evaluation, SamplesSpec) and evaluation.metrics:
            features = evaluation.count * FEATURE_SECONDS
        return calls * self.call + flops * self.per_call_flop + features


FLOPS = Speed(overhead=0, per_flop=1, call=0, per_call_flop=1)  # for want of seconds: what it costs


def kind_of(spec: RunSpec) -> Kind:
    """Return what decides how long a FLOP takes on one device; placements and rates do not."""
    shape = (spec.data.channels, spec.data.size)
    joined = tuple(system.step_kind(spec) for system in systems_of(spec))
    execution = (spec.execution.micro_batch, *spec.execution.kernels)
    return spec.model, shape, spec.precision, spec.train.batch, type(spec.loss), joined, *execution


def step_flops(spec: RunSpec) -> float:
    """Return the executed FLOPs of a training step under the run's routes."""
    return float(cost(spec).train_flops_per_image * spec.train.batch)


def fitted_step(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the seconds of a step that do not depend on its FLOPs, and those of a FLOP.

    Least squares of `seconds = overhead + per_flop FLOPs` through the median of each FLOP count. A
    single count tells no overhead: all of its time is taken to scale with FLOPs. Where times
    scatter so much that no such line is sensible, it goes through the costliest step.

    Args:
        measured: FLOPs and seconds of steps, at least one.
    """
    by_flops: dict[float, list[float]] = {}
    for flops, seconds in measured:
        by_flops.setdefault(flops, []).append(seconds)
    x = list(by_flops)
    y = [statistics.median(times) for times in by_flops.values()]
    most = y[x.index(max(x))] / max(x)
    if len(x) == 1:
        return 0.0, most
    slope = statistics.linear_regression(x, y).slope
    if _LEAST * most <= slope <= most:
        return max(statistics.fmean(y) - slope * statistics.fmean(x), 0.0), slope
    per_flop = most if slope > most else _LEAST * most
    return (most - per_flop) * max(x), per_flop
