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
    """What a source holds.

    Attributes:
        latents: its samples are latents, which an autoencoder turns into images.
        scaled: what it holds is what the network sees, if the spec does not say otherwise.
        decoder_scale: what the decoder divides by where a spec gives no factor at all.
        normalised: each channel is normalised by statistics beside the data, if the spec does not
            say otherwise.
        enlarges: side of a decoded image over that of a latent (8 for SD's autoencoder).
        options: the fields among `OPTIONS` that mean something for it; a spec forgets the others.
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
    """Where samples come from and what one sample looks like.

    Attributes:
        source: `fashion16` (embedded images), `latents` (packed arrays), `shards` (webdataset tars
            with `latent.npy` and `cls`), `folder` (REPA's and EDM2's files of latents), `images`
            (the same of PNG images) or `safetensors` (LightningDiT's).
        path: folder or file of the data, made absolute; the embedded set needs none.
        channels, size: one sample is channels x size x size.
        classes: number of class labels.
        scale: factor from stored values to what the network sees: 1 for latents that are stored
            scaled, as the official tars are; 0.18215 for what the SD encoder gave. The default is
            1 for `shards`, and for `latents` `decoder_scale`, else 1.
        decoder_scale: what the decoder divides the network's values by (0.18215 for SD's). The
            default is `scale`; for `shards` without either it is 0.18215. Where channels are
            normalised, only tars, and arrays packed of tars, are times a factor: this one, else
            0.18215.
        deviation: standard deviation that the network's values should have; a store far from it
            is refused before training. It is not signed.
        posterior: where mean and deviation of the encoder's posterior are stored, training sees a
            new sample of it each epoch, or its mean. Everything else sees the mean.
        flips: where the latents of mirrored images are stored too, training sees either with
            probability 1/2, by chance each epoch.
        normalise: take each channel less its mean and over its deviation, which lie beside the data
            (`statistics.json` or `latents_stats.pt`), before `scale`. The default is true for
            `safetensors` and false for others.
        decoder_range: range of the pixels that the autoencoder was fed: `signed` is -1..1, as SD's
            own code has it, `unit` is 0..1, as EDM2's has it.
        digest: of what the data hold (`data.content`). Commands fill it in; `None` for the embedded
            set.
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
        """What the source holds."""
        return SOURCES[self.source]

    @property
    def is_embedded(self) -> bool:
        """Whether the samples belong to the code."""
        return self.source == "fashion16"

    @property
    def normalised(self) -> bool:
        """Whether each channel is normalised by the statistics beside the data."""
        return self.holds.normalised if self.normalise is None else self.normalise

    @property
    def scales(self) -> tuple[float, float]:
        """The factor from stored values to the network's, and what the decoder divides these by."""
        assert self.scale is not None
        return self.scale, self.scale if self.decoder_scale is None else self.decoder_scale
