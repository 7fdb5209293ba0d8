"""What the data are: what each source of samples stores, and what one sample looks like."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

from tread_lab.config.decode import Count, Positive, settle, unhashed
from tread_lab.config.registry import Registry

SD_SCALE = 0.18215  # of the Stable Diffusion autoencoder: latent = encoding x 0.18215
SD_DEVIATION = 0.93  # of its ImageNet latents, times 0.18215
OPTIONS = ("scale", "posterior", "flips", "normalise")  # fields that not every source has a use for


@dataclass(frozen=True)
class Source:
    """Properties of a data source.

    Attributes:
        latents: whether samples are latents of an autoencoder.
        scaled: whether stored values are already scaled, unless the spec sets `scale`.
        decoder_scale: divisor before decoding if the spec sets no factor.
        normalised: whether each channel is normalised by statistics beside the data by default.
        enlarges: ratio of image side to latent side (8 for SD's autoencoder).
        options: the fields of `OPTIONS` that apply; others are reset.
    """

    latents: bool
    scaled: bool
    decoder_scale: float | None = None
    normalised: bool = False
    enlarges: int = 8
    options: tuple[str, ...] = OPTIONS


SOURCES = Registry(
    "source",
    {
        "fashion16": Source(latents=False, scaled=True, enlarges=1, options=()),
        "latents": Source(latents=True, scaled=False),  # packed as the encoder gave them
        "shards": Source(  # the official tars
            latents=True, scaled=True, decoder_scale=SD_SCALE, options=("scale", "normalise")
        ),
        "folder": Source(  # files and dataset.json, as REPA and EDM2
            latents=True, scaled=False, options=("scale", "posterior", "normalise")
        ),
        "images": Source(latents=False, scaled=True, enlarges=1, options=("scale",)),  # PNG files
        "safetensors": Source(  # as LightningDiT
            latents=True, scaled=True, normalised=True, options=("scale", "flips", "normalise")
        ),
    },
)


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Source and shape of the samples.

    Attributes:
        source: `fashion16` (embedded images), `latents` (packed arrays), `shards` (webdataset tars
            with `latent.npy` and `cls`), `folder` (REPA's and EDM2's files of latents), `images`
            (the same of PNG images) or `safetensors` (LightningDiT's).
        path: folder or file of the data, made absolute; the embedded set needs none.
        channels, size: one sample is channels x size x size.
        classes: number of class labels.
        scale: factor from stored values to the network's: 1 for latents stored scaled, like the
            official tars; 0.18215 for raw SD latents. The default is 1 for `shards`, and for
            `latents` `decoder_scale`, else 1.
        decoder_scale: divisor of the network's values before decoding (0.18215 for SD's). The
            default is `scale`; for `shards` without either it is 0.18215. With normalised channels,
            the factor only applies to tars and arrays packed from tars; default 0.18215.
        deviation: expected standard deviation of the network's values, checked before training; not
            part of the signature.
        posterior: for stored moments, whether training draws a new sample each epoch or uses the
            mean. Everything else uses the mean.
        flips: for stored mirrored latents, whether training draws either version with probability
            1/2 each epoch.
        normalise: normalize each channel by the statistics beside the data (`statistics.json` or
            `latents_stats.pt`), before `scale`. The default is true for `safetensors` and false for
            others.
        decoder_range: pixel range of the autoencoder: `signed` (-1..1, as SD's code) or `unit`
            (0..1, as EDM2's).
        digest: content digest (`data.content`), set by the commands; `None` for the embedded set.
    """

    source: Annotated[str, SOURCES] = "fashion16"
    path: str | None = unhashed(None)
    channels: Count = 1
    size: Count = 16
    classes: Count = 10
    scale: Positive | None = None
    decoder_scale: Positive | None = None
    deviation: Positive | None = unhashed(None)
    posterior: Literal["sampled", "mean"] = "sampled"
    flips: bool = True
    normalise: bool | None = None
    decoder_range: Literal["signed", "unit"] = "signed"
    digest: str | None = None

    def __post_init__(self) -> None:
        """Write out what is implied, and forget what has no effect: equal data are equal specs."""
        holds, defaults = self.holds, {field.name: field.default for field in fields(self)}
        settle(self, **{n: defaults[n] for n in OPTIONS if n not in holds.options})
        scale, decoder_scale = self.scale, self.decoder_scale
        if scale is None:
            decoder_scale = decoder_scale or holds.decoder_scale
            scale = 1.0 if holds.scaled or decoder_scale is None else decoder_scale
        own_factor = self.normalised and holds.decoder_scale  # `scale` says nothing of it
        if not holds.latents or (decoder_scale == scale and not own_factor):
            decoder_scale = None
        settle(
            self,
            path=self.path and str(Path(self.path).expanduser().absolute()),
            normalise=None if self.normalise == holds.normalised else self.normalise,
            scale=scale,
            decoder_scale=decoder_scale,
            decoder_range=self.decoder_range if holds.latents else "signed",
        )

    @property
    def holds(self) -> Source:
        """Properties of the source."""
        return SOURCES[self.source]

    @property
    def is_embedded(self) -> bool:
        """Whether the samples are shipped with the code."""
        return self.source == "fashion16"

    @property
    def normalised(self) -> bool:
        """Whether each channel is normalised by the statistics beside the data."""
        return self.holds.normalised if self.normalise is None else self.normalise

    @property
    def scales(self) -> tuple[float, float]:
        """Factor from stored values to the network's, and the decoder's divisor."""
        assert self.scale is not None
        return self.scale, self.scale if self.decoder_scale is None else self.decoder_scale
