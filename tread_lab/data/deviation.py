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
    """Refuse data whose decoded held-out samples are not images in the given range.

    Pixels of 0..1 read as -1..1 are never dark; pixels of -1..1 read as 0..1 are far below the
    darkest level.

    Raises:
        UserError: describes the decoded values.
    """
    decoded: Callable[[Tensor], Tensor | None] = getattr(heldout, "decoded", lambda x_BCHW: None)
    if (image_BCHW := decoded(_spread(heldout, DECODED))) is None:
        return
    beyond = 1 - float((image_BCHW.abs() <= BEYOND).float().mean())  # NaN is, too
    dark, mean = float((image_BCHW < DARK).float().mean()), float(image_BCHW.mean())
    bright = data.decoder_range == "signed" and dark < LEAST_DARK and mean > -DARK
    if bright or (beyond > MOST_BEYOND and not float(image_BCHW.std()) <= CONTRAST):
        other = "unit" if data.decoder_range == "signed" else "signed"
        raise UserError(
            f"data.decoder_range: images decoded from {data.path} as {data.decoder_range} must be"
            f" in -1..1, got {dark:.2%} of the values below {DARK:g} and {beyond:.0%} beyond +-"
            f"{BEYOND:g}. Try {other}, or check data.decoder_scale and the autoencoder."
        )


def check_deviation(spec: RunSpec, samples: Samples) -> float:
    """Return the measured standard deviation of the network's input.

    Raises:
        UserError: far from `data.deviation`, or by default from the value of the SD autoencoder or
            the process.
    """
    data, (scale, decoder_scale) = spec.data, spec.data.scales
    of_sd = data.holds.latents and decoder_scale == SD_SCALE
    if data.deviation is not None:
        expected, factor, why = data.deviation, NEAR, "data.deviation"
    elif of_sd:
        expected, factor, why = SD_DEVIATION, NEAR, "latents of the SD autoencoder"
    elif isinstance(spec.process, EDMSpec):
        expected, factor, why = spec.process.sigma_data, FAR, "EDM's sigma_data"
    else:
        expected, factor, why = 1.0, FAR, NOISES[spec.process.kind]
    measured = float(_spread(samples, MEASURED).double().std(correction=0))
    if expected / factor <= measured <= expected * factor:
        return measured
    remedy = "Values that are constant or not finite have no scale"
    if 0 < measured < math.inf:
        remedy = f"Try data.scale={scale * expected / measured:.2g}"
        remedy += f" data.decoder_scale={decoder_scale:g}" if of_sd else ""
    raise UserError(
        f"data: the standard deviation seen by the network must be near {expected:g} ({why}), got "
        f"{measured:.3g}. {remedy}. Or set data.deviation, if this value is correct."
    )


def _spread(samples: Samples, most: int) -> Tensor:
    """Return at most `most` samples, evenly spread over the set."""
    ids = torch.linspace(0, len(samples) - 1, min(most, len(samples))).long()
    return samples.take(ids)[0]
