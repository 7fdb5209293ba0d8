"""Speed of a device on one kind of run: seconds a step and a FLOP, fitted to steps or stated."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tread_lab.engine import device as devices
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import systems_of
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec

PROBE = "fp32"  # the arithmetic of held-out losses and similarity
PASS = 1.25  # on a CPU a FLOP of a forward pass takes 1 / 1.25 of the time of one in training
_LEAST = 0.2  # of the time of the costliest step that is taken to scale with its FLOPs
Kind = tuple[object, ...]


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step on one slot: a fixed part, and a part for each FLOP."""

    overhead: float
    per_flop: float

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the predicted seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def pass_seconds(self, spec: RunSpec, flops: float, devices: float = 1) -> float:
        """Return the seconds of so many FLOPs on one of the devices that share a run, at the rate
        of a whole dense step."""
        return flops * (self.overhead / step_flops(spec.dense()) + devices * self.per_flop)


FLOPS = Speed(overhead=0, per_flop=1)  # for want of seconds: what it costs


def kind_of(spec: RunSpec) -> Kind:
    """Return what decides how long a FLOP takes on one device; placements and rates do not."""
    shape = (spec.data.channels, spec.data.size)
    joined = tuple(system.step_kind(spec) for system in systems_of(spec))
    execution = (spec.execution.micro_batch, *spec.execution.kernels)
    return spec.model, shape, spec.precision, spec.train.batch, type(spec.loss), joined, *execution


def step_flops(spec: RunSpec) -> float:
    """Return the executed FLOPs of a training step under the run's routes."""
    return float(cost(spec).step.flops * spec.train.batch)


def fitted(measured: Sequence[tuple[float, float]]) -> Speed:
    """Return the speed that steps tell.

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
        return Speed(0.0, most)
    slope = statistics.linear_regression(x, y).slope
    if _LEAST * most <= slope <= most:
        return Speed(max(statistics.fmean(y) - slope * statistics.fmean(x), 0.0), slope)
    per_flop = most if slope > most else _LEAST * most
    return Speed((most - per_flop) * max(x), per_flop)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """FLOP/s that a device reaches; `source` says where the numbers come from.

    Attributes:
        training, sampling: by precision.
        images: `decoding` by the autoencoder's decoder, tf32 on a GPU; `features` of Inception,
            exact fp32.
    """

    device: str
    training: Mapping[str, float]
    sampling: Mapping[str, float]
    images: Mapping[str, float]
    source: str

    def pass_speedup(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        """Return how many times as fast a FLOP is in an evaluation's passes as in training."""
        precision = PROBE
        if isinstance(evaluation, SamplesSpec):
            precision = evaluation.sampler.precision
        return self.sampling[precision] / self.training[spec.precision]


def _gpu(name: str, fp32: float) -> Rates:
    """A GPU by its datasheet: shares of the dense peak that runs of this kind are assumed to reach.

    Published DiT training reaches .2 to .28 of the bf16 peak. No number here was timed.
    """
    bf16 = devices.PEAK_FLOPS[name]
    peaks = {"bf16": bf16, "fp16": bf16, "tf32": bf16 / 2, "fp32": fp32}
    return Rates(
        device=name,
        training={precision: 0.25 * peak for precision, peak in peaks.items()},
        sampling={precision: 0.3 * peak for precision, peak in peaks.items()},
        images={"decoding": 0.3 * peaks["tf32"], "features": 0.3 * peaks["fp32"]},
        source="stated: .25 of the datasheet's dense peak in training, .3 elsewhere",
    )


RATES: dict[str, Rates] = {
    "cpu": Rates(
        device="cpu",
        training={"fp32": 7.9e10, "bf16": 6.1e10, "fp16": 6.0e9, "tf32": 7.9e10},
        sampling={"fp32": 8.6e10, "bf16": 6.6e10, "fp16": 1.9e10, "tf32": 8.6e10},
        images={"decoding": 1.15e11, "features": 5.2e10},
        source="measured on one core of a 2.5 GHz Xeon (DiT-S/2; SD decoder 5.3 s, Inception 220 ms"
        " an image)",
    ),
    "A100": _gpu("A100", 19.5e12),
    "H100": _gpu("H100", 67e12),
    "H200": _gpu("H200", 67e12),
    "H800": _gpu("H800", 67e12),
}


def rates_of(type: str, name: str) -> Rates | None:
    """Return the rates of a device of that type and name; `None` where none are stated for it."""
    return devices.of_gpu(RATES, "cpu" if type == "cpu" else name)
