"""FLOP/s of devices by kind of work, measured or stated: a forecast where nothing can be timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tread_lab.engine import device as devices
from tread_lab.engine.cost.images import ImageWork, image_work, reference_work
from tread_lab.engine.cost.sampling import passes
from tread_lab.engine.cost.training import cost
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.run import RunSpec

PROBE = "fp32"  # the arithmetic of held-out losses and similarity


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

    def train_seconds(self, spec: RunSpec) -> float:
        """Return the seconds of all training steps."""
        return cost(spec).train_flops / self.training[spec.precision]

    def pass_seconds(self, spec: RunSpec, evaluation: EvaluationSpec) -> float:
        """Return the seconds of the network's passes in one evaluation."""
        precision: str = PROBE
        if isinstance(evaluation, SamplesSpec):
            precision = evaluation.sampler.precision
        return passes(spec, evaluation)[1] / self.sampling[precision]

    def image_seconds(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of work on generated images by its kind, where there is any."""
        return self._seconds(image_work(spec, evaluation))

    def reference_seconds(self, spec: RunSpec, evaluation: EvaluationSpec) -> dict[str, float]:
        """Return the seconds of work on references by its kind; it is done once for a lab."""
        return self._seconds(reference_work(spec, evaluation))

    def _seconds(self, work: ImageWork) -> dict[str, float]:
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
    label = "cpu" if type == "cpu" else name
    return next((rates for device, rates in RATES.items() if device in label), None)
