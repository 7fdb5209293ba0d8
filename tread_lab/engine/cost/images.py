"""What an image metric costs after sampling: FLOPs of decoding, of features, of the references."""

# c channels, s side in pixels of a feature map

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.data.split import MOST_HELDOUT
from tread_lab.engine.cost.training import FLOPS_PER_MAC
from tread_lab.specs.evaluation import EvaluationSpec, SamplesSpec
from tread_lab.specs.metrics import METRICS, OWN_FEATURES
from tread_lab.specs.run import RunSpec

INCEPTION_FLOPS = 11.4e9  # an image at 299x299 through Inception-v3, two for each MAC
DINOV2_FLOPS = 162e9  # one at 224x224 through ViT-L/14: 24 blocks of 257 tokens of width 1,024
SD_WIDTHS = (128, 256, 512, 512)  # the Stable Diffusion autoencoder, from pixels to latents


@dataclass(frozen=True)
class ImageWork:
    """FLOPs beside the sampled network's own.

    Attributes:
        decoding, features: of all generated images.
        reference_decoding, reference_features: of the data set's, once for a lab.
    """

    decoding: float = 0.0
    features: float = 0.0
    reference_decoding: float = 0.0
    reference_features: float = 0.0


def image_work(spec: RunSpec, evaluation: EvaluationSpec) -> ImageWork:
    """Return the work of one evaluation; none where pixels are the data or no image is looked at.

    The data set's own small extractor costs next to nothing and is left out. Ten thousand
    references are assumed, the most that a data set holds out. Those of a file need no decoding,
    and no features for metrics that its moments are enough for.
    """
    if not isinstance(evaluation, SamplesSpec):
        return ImageWork()
    source = spec.data.source
    decode = 0.0 if source in OWN_FEATURES else FLOPS_PER_MAC * decoder_macs(spec.data.size)
    metrics, compared = list(evaluation.metrics), described(evaluation)
    features, reference_features = (_feature_flops(each, source) for each in (metrics, compared))
    references = MOST_HELDOUT if reference_features else 0
    return ImageWork(
        evaluation.count * decode,
        evaluation.count * features,
        references * decode if evaluation.reference is None else 0.0,
        references * reference_features,
    )


def _feature_flops(metrics: Sequence[str], source: str) -> float:
    """Return the FLOPs of an image through every large network that the metrics look through."""
    any_of = 0.0 if source in OWN_FEATURES else INCEPTION_FLOPS
    flops = {"inception": INCEPTION_FLOPS, "dinov2": DINOV2_FLOPS, "own": 0.0, "any": any_of}
    return sum({flops[METRICS[metric].features] for metric in metrics})


def described(evaluation: SamplesSpec) -> list[str]:
    """Return the metrics that need features of references; for some a file's moments are enough."""
    by_file = evaluation.reference is not None
    return [
        metric
        for metric in evaluation.metrics
        if METRICS[metric].compares and not (by_file and METRICS[metric].moments_given)
    ]


def decoder_macs(
    side: int, *, channels: int = 4, widths: Sequence[int] = SD_WIDTHS, layers: int = 2
) -> int:
    """Return the MACs of the autoencoder's decoder for latents of `side` x `side`.

    Convolutions are 3x3; every stage but the last ends with an upsampling and a convolution, the
    middle has one attention between two residual blocks. 3.11e11 for 4x32x32: .62 TFLOP an image.
    """
    s, c = side, widths[-1]
    macs = _convolution(channels, c, s) + 2 * _residual(c, c, s)
    macs += 4 * c * c * s**2 + 2 * c * s**4
    for stage, width in enumerate(reversed(widths)):
        macs += _residual(c, width, s) + layers * _residual(width, width, s)
        c = width
        if stage < len(widths) - 1:
            s *= 2
            macs += _convolution(c, c, s)
    return macs + _convolution(c, 3, s)


def _convolution(c_in: int, c_out: int, s: int) -> int:
    return 9 * c_in * c_out * s**2


def _residual(c_in: int, c_out: int, s: int) -> int:
    shortcut = c_in * c_out * s**2 if c_in != c_out else 0
    return _convolution(c_in, c_out, s) + _convolution(c_out, c_out, s) + shortcut
