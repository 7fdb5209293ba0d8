"""Speed of a device on one kind of run: seconds a call and a FLOP, fitted to steps or stated."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tread_lab.engine import device as devices
from tread_lab.engine.cost.sampling import ImageWork, passes
from tread_lab.engine.cost.training import cost
from tread_lab.engine.system import systems_of
from tread_lab.sampling.generate import IMAGES_A_CALL, images_a_call
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec

PROBE = "fp32"  # the arithmetic of held-out losses and similarity, and of the passes that are timed
_LEAST = 0.2  # of the time of the costliest step that is taken to scale with its FLOPs
Kind = tuple[object, ...]


@dataclass(frozen=True)
class Speed:
    """What takes time on one slot: a fixed part for each call, and a part for each FLOP.

    Attributes:
        overhead, per_flop: seconds of a training step.
        call, per_call_flop: seconds of a forward pass without gradients, in fp32, on one device.
        images_a_call: images of one call of a sampler on this device.
        load: how many times as long as these seconds it took by the wall clock, since other
            processes had the CPU.
        describing: seconds of an image's features and its share of the statistics.
        faster: how many times as fast a FLOP of a pass is by precision; 1 where it is not named.
        devices: that draw images together; the first one alone makes held-out losses.
    """

    overhead: float
    per_flop: float
    call: float
    per_call_flop: float
    load: float = 1.0
    images_a_call: float = IMAGES_A_CALL["cpu"]
    describing: float = 1.5e-3
    faster: Mapping[str, float] = field(default_factory=dict)
    devices: int = 1

    @staticmethod
    def of_steps(
        measured: Sequence[tuple[float, float]], device_type: str = "cpu", devices: int = 1
    ) -> Speed:
        """Return the speed that steps alone tell: a pass is taken to be a third of a step."""
        overhead, per_flop = fitted_step(measured)
        images, call = images_a_call(device_type), (overhead / 3, devices * per_flop)
        return Speed(overhead, per_flop, *call, images_a_call=images, devices=devices)

    def in_turns(self, turns: float) -> Speed:
        """Return the speed of a slot that has its CPUs for one part in `turns` of the time."""
        parts = ("overhead", "per_flop", "call", "per_call_flop")
        slower: dict[str, Any] = {part: turns * getattr(self, part) for part in parts}
        return replace(self, **slower, load=self.load / turns)

    def of_several(self, devices: int, sharing: int = 1) -> Speed:
        """Return the speed of devices like this one that share a run, without their exchange; or of
        one that so many runs share: what the host does of a step goes on beside the others."""
        per_flop, per_call_flop = sharing * self.per_flop / devices, sharing * self.per_call_flop
        return replace(self, per_flop=per_flop, per_call_flop=per_call_flop, devices=devices)

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the predicted seconds of all training steps."""
        return spec.train.steps * self.overhead + cost(spec).train_flops * self.per_flop

    def evaluate_seconds(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        """Return the predicted seconds of an evaluation."""
        calls, flops = passes(spec, evaluation, self.images_a_call * self.devices)
        precision, images, devices = PROBE, 0, 1
        if isinstance(evaluation, SamplesSpec):
            precision, devices = evaluation.sampler.precision, self.devices
            images = evaluation.count if evaluation.metrics else 0
        in_flops = flops * self.per_call_flop / self.faster.get(precision, 1.0) / devices
        return calls * self.call + in_flops + images * self.describing


FLOPS = Speed(overhead=0, per_flop=1, call=0, per_call_flop=1)  # for want of seconds: what it costs


def kind_of(spec: RunSpec) -> Kind:
    """Return what decides how long a FLOP takes on one device; placements and rates do not."""
    shape = (spec.data.channels, spec.data.size)
    joined = tuple(system.step_kind(spec) for system in systems_of(spec))
    execution = (spec.execution.micro_batch, *spec.execution.kernels)
    return spec.model, shape, spec.precision, spec.train.batch, type(spec.loss), joined, *execution


def step_flops(spec: RunSpec) -> float:
    """Return the executed FLOPs of a training step under the run's routes."""
    return float(cost(spec).step.flops * spec.train.batch)


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


@dataclass(frozen=True, kw_only=True)
class Rates:
    """FLOP/s that a device reaches; `source` says where the numbers come from.

    Attributes:
        training, sampling: by precision.
        decoding: the autoencoder's decoder, tf32 on a GPU.
        features: Inception, exact fp32.
    """

    device: str
    training: Mapping[str, float]
    sampling: Mapping[str, float]
    decoding: float
    features: float
    source: str

    @property
    def faster(self) -> dict[str, float]:
        """How many times as fast as fp32 a pass is, by precision."""
        return {name: rate / self.sampling[PROBE] for name, rate in self.sampling.items()}

    def speed(self, precision: str) -> Speed:
        """Return the speed of runs that train in this precision."""
        per_flop, per_call_flop = 1 / self.training[precision], 1 / self.sampling[PROBE]
        return Speed(0.0, per_flop, 0.0, per_call_flop, describing=0.0, faster=self.faster)

    def seconds(self, work: ImageWork) -> dict[str, float]:
        """Return the seconds of work on images by its kind, where there is any."""
        decoding, features = work.decoding / self.decoding, work.features / self.features
        seconds = {"decoding": decoding, "features": features}
        return {kind: value for kind, value in seconds.items() if value}


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
        decoding=0.3 * peaks["tf32"],
        features=0.3 * peaks["fp32"],
        source="stated: .25 of the datasheet's dense peak in training, .3 elsewhere",
    )


RATES: dict[str, Rates] = {
    "cpu": Rates(
        device="cpu",
        training={"fp32": 7.9e10, "bf16": 1.4e10, "fp16": 1.4e10, "tf32": 7.9e10},
        sampling={"fp32": 8.6e10, "bf16": 1.9e10, "fp16": 1.9e10, "tf32": 8.6e10},
        decoding=1.15e11,
        features=5.2e10,
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
