"""Measures what the network will see and what is decoded; refuses data that are scaled wrongly."""

# B batch, C channels, H height, W width

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tread_lab.config.data import SD_DEVIATION, SD_SCALE, DataSpec
from tread_lab.config.errors import UserError
from tread_lab.config.recipe import EDMSpec
from tread_lab.config.run import RunSpec
from tread_lab.data.source import Samples

MEASURED = 256  # samples, evenly spread over the set
NEAR = 1.5  # how many times off a known deviation may be; subsets of ImageNet stay within 1.2
FAR = 3.0  # the same where only the process says what it was made for
NOISES = {"flow": "flow matching's noise", "ddpm": "DDPM's noise"}


DECODED = 8  # held-out samples, evenly spread over the part
BEYOND = 1.6  # a decoded value that is no pixel of -1..1; decoders overshoot by less
MOST_BEYOND = 0.05  # the share of such values that images may have
CONTRAST = 0.8  # deviation from which on such a share counts: a random decoder stays below
DARK, LEAST_DARK = -0.2, 0.005  # photographs have far more values below the first than the second


def check_decoded(data: DataSpec, heldout: Samples) -> None:
    """Refuse data whose decoded held-out samples cannot be images in the range that is said.

    Pixels of 0..1 that are taken for -1..1 are bright and nowhere dark; those of -1..1 that are
    taken for 0..1 lie far below the darkest level.

    Raises:
        UserError: says what was found, and the range that they seem to have.
    """
    decoded: Callable[[Tensor], Tensor | None] = getattr(heldout, "decoded", lambda x_BCHW: None)
    image_BCHW = decoded(_spread(heldout, DECODED))
    if image_BCHW is None:
        return
    beyond = 1 - float((image_BCHW.abs() <= BEYOND).float().mean())  # NaN is, too
    dark, mean = float((image_BCHW < DARK).float().mean()), float(image_BCHW.mean())
    if data.decoder_range == "signed" and dark < LEAST_DARK and mean > -DARK:
        what, remedy = f"{dark:.2%} of their values are below {DARK:g}", "set it to unit"
    elif beyond > MOST_BEYOND and not float(image_BCHW.std()) <= CONTRAST:
        what = f"{beyond:.0%} of their values lie beyond +-{BEYOND:g}"
        remedy = "check data.decoder_scale and the autoencoder"
        if data.decoder_range == "unit":
            remedy = f"set it to signed, or {remedy}"
    else:
        return
    raise UserError(
        f"data.decoder_range: decoded as {data.decoder_range}, held-out samples of {data.path} are"
        f" no images of -1..1 ({what}, the mean is {mean:.2g}); {remedy}"
    )


def expected_deviation(spec: RunSpec) -> tuple[float, float, str]:
    """Return what `data.deviation` says, else what the SD autoencoder or the process implies.

    That is a deviation, how many times off is still taken, and who says so.
    """
    data, (_, decoder_scale) = spec.data, spec.data.scales
    if data.deviation is not None:
        return data.deviation, NEAR, "data.deviation"
    if data.holds.latents and decoder_scale == SD_SCALE:
        return SD_DEVIATION, NEAR, "latents of the SD autoencoder"
    if isinstance(spec.process, EDMSpec):
        return spec.process.sigma_data, FAR, "EDM's sigma_data"
    return 1.0, FAR, NOISES[spec.process.kind]


def measure_deviation(samples: Samples) -> float:
    """Return the standard deviation over all values of at most 256 samples of the set."""
    return float(_spread(samples, MEASURED).double().std(correction=0))


def _spread(samples: Samples, most: int) -> Tensor:
    """Return at most `most` samples, evenly spread over the set."""
    ids = torch.linspace(0, len(samples) - 1, min(most, len(samples))).long()
    return samples.take(ids)[0]


def _check_channels(data: DataSpec, samples: Samples) -> None:
    """Refuse channels that differ although each was divided by its own deviation."""
    x_CN = _spread(samples, MEASURED).double().transpose(0, 1).flatten(1) / data.scales[0]
    for channel, deviation in enumerate(x_CN.std(dim=1, correction=0).tolist()):
        if not 1 / FAR <= deviation <= FAR:
            raise UserError(
                f"data.normalise: channel {channel} deviates by {deviation:.3g} after it was"
                " divided by its deviation, so the statistics beside the data are of other data;"
                " `tread-lab data stats --write` measures them anew"
            )


def check_deviation(spec: RunSpec, samples: Samples) -> float:
    """Return the measured deviation of what the network of `spec` will see.

    Raises:
        UserError: it is far from the expected one; says both and the likely mistake. Or channels
            are normalised by statistics that are not theirs.
    """
    if spec.data.normalised and spec.data.deviation is None:
        _check_channels(spec.data, samples)
    measured, (expected, factor, why) = measure_deviation(samples), expected_deviation(spec)
    if expected / factor <= measured <= expected * factor:
        return measured
    raise UserError(
        f"data: the network would see a deviation of {measured:.3g}, and {expected:g} is"
        f" expected ({why}): {_likely(spec.data, measured, expected)}; data.deviation says that"
        " another one is right"
    )


def _likely(data: DataSpec, measured: float, expected: float) -> str:
    """Return what is probably wrong, and the settings that would mend it."""
    scale, decoder_scale = data.scales
    for factor in {decoder_scale, SD_SCALE} - {1.0}:
        if _close(measured / factor, expected) and _close(scale, factor):
            return (
                f"what is stored is already times {factor:g}, or of unit variance, set data.scale=1"
                f" data.decoder_scale={factor:g}, or for unit variance data.normalise=true"
            )
        if _close(measured * factor, expected) and _close(scale, 1.0):
            return f"what is stored is not scaled yet, set data.scale={factor:g}"
    if not 0 < measured < math.inf:
        return "what is stored is constant or not finite"
    return f"check data.scale, such as {scale * expected / measured:.3g}"


def _close(a: float, b: float) -> bool:
    return b / NEAR <= a <= b * NEAR
