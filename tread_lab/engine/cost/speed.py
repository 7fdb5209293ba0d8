"""Speed of a device on one kind of run: seconds a step and a FLOP, fitted to steps or stated."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tread_lab.engine import device as devices
from tread_lab.engine.cost.training import FP32_BLOCK, cost
from tread_lab.engine.system import systems_of
from tread_lab.specs.errors import lookup
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.model import BACKBONES
from tread_lab.specs.run import RunSpec

PROBE = "fp32"  # the arithmetic of held-out losses and similarity
PASS = 1.25  # on a CPU a FLOP of a forward pass takes 1 / 1.25 of the time of one in training
# Of the dense bf16 peak, what training of B/2 in bf16 reaches with and without compiled blocks:
# measured on one H200 (benchmarks/performance_gpu.jsonl).
COMPILED, EAGER = 0.39, 0.28
SPREAD = 0.8, 1.5  # factors on that time for other runs and GPUs: predicted of XL/2 and S/2
_LEAST = 0.2  # of the time of the costliest step that is taken to scale with its FLOPs
Kind = tuple[object, ...]


@dataclass(frozen=True)
class Speed:
    """Seconds of a training step on one slot: a fixed part, and a part for each FLOP, of which
    those of the fp32 block take `fp32_block` times as long."""

    overhead: float
    per_flop: float
    fp32_block: float = 1.0

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the predicted seconds of all training steps."""
        price = cost(spec)
        flops = price.train_flops + (self.fp32_block - 1) * price.exact_flops * price.images
        return spec.train.steps * self.overhead + flops * self.per_flop

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


def step_flops(spec: RunSpec, fp32_block: float = 1.0) -> float:
    """Return the executed FLOPs of a training step under the run's routes, those of its fp32 block
    so many times."""
    price = cost(spec)
    return float((price.step.flops + (fp32_block - 1) * price.exact_flops) * spec.train.batch)


def fp32_block_on(device_type: str) -> float:
    """Return how many times as long the fp32 block of a run takes there as another block."""
    return FP32_BLOCK if device_type == "cuda" else 1.0


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
        type: of the device.
        eager: the part of these rates that blocks reach which are not compiled.
        measured: the name of the model for which training was timed on this very device, in bf16
            and with 256 images a pass; empty where all runs are alike.
    """

    device: str
    training: Mapping[str, float]
    sampling: Mapping[str, float]
    images: Mapping[str, float]
    source: str
    type: str = "cuda"
    eager: float = EAGER / COMPILED
    measured: str = ""

    def speed(self, spec: RunSpec, share: float = 1.0) -> Speed:
        """Return the speed of a run on so many devices, or on a part of one."""
        able = lookup(BACKBONES, spec.model.backbone, "model.backbone").compiles
        eager = spec.execution.compile == "none" or not able
        rate = self.training[spec.precision] * (self.eager if eager else 1.0)
        return Speed(0.0, 1 / share / rate, fp32_block_on(self.type))

    def spread(self, spec: RunSpec, share: float = 1.0) -> tuple[float, float]:
        """Return the least and the greatest factor on the time by these rates."""
        own = (spec.model.name, spec.tokens, spec.precision, cost(spec).micro_batch)
        like = own == (self.measured, 256, "bf16", 256) and share <= 1 and not systems_of(spec)
        return (1.0, 1.0) if like or self.type == "cpu" else SPREAD

    def pass_speedup(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        """Return how many times as fast a FLOP is in an evaluation's passes as in training."""
        precision = PROBE
        if isinstance(evaluation, SamplesSpec):
            precision = evaluation.sampler.precision
        return self.sampling[precision] / self.training[spec.precision]


def _gpu(name: str, fp32: float, measured: str = "") -> Rates:
    """A GPU by its datasheet: shares of the dense peak as one H200 reaches them in training of B/2
    and in decoding, 4.3 ms an image; those of other work are assumed to be the same."""
    bf16 = devices.PEAK_FLOPS[name]
    peaks = {"bf16": bf16, "fp16": bf16, "tf32": bf16 / 2, "fp32": fp32}
    network = {precision: COMPILED * peak for precision, peak in peaks.items()}
    return Rates(
        device=name,
        training=network,
        sampling=network,
        images={"decoding": 0.3 * peaks["tf32"], "features": 0.3 * peaks["fp32"]},
        source=f"shares of the dense peak, measured with B/2 on one H200: {COMPILED:g} compiled,"
        f" {EAGER:g} eager; decoding 0.3",
        measured=measured,
    )


RATES: dict[str, Rates] = {
    "cpu": Rates(
        device="cpu",
        training={"fp32": 7.9e10, "bf16": 6.1e10, "fp16": 6.0e9, "tf32": 7.9e10},
        sampling={"fp32": 8.6e10, "bf16": 6.6e10, "fp16": 1.9e10, "tf32": 8.6e10},
        images={"decoding": 1.15e11, "features": 5.2e10},
        source="measured on one core of a 2.5 GHz Xeon (DiT-S/2; SD decoder 5.3 s, Inception 220 ms"
        " an image)",
        type="cpu",
        eager=1.0,
    ),
    "A100": _gpu("A100", 19.5e12),
    "H100": _gpu("H100", 67e12),
    "H200": _gpu("H200", 67e12, measured="DiT-B/2"),
    "H800": _gpu("H800", 67e12),
}


def rates_of(type: str, name: str) -> Rates | None:
    """Return the rates of a device of that type and name; `None` where none are stated for it."""
    return devices.of_gpu(RATES, "cpu" if type == "cpu" else name)
