"""What each source of samples stores, and which factors follow where a spec leaves them out."""

from __future__ import annotations

from dataclasses import dataclass

from tread_lab.specs.errors import lookup
from tread_lab.specs.extensions import Kind

SD_SCALE = 0.18215  # of the Stable Diffusion autoencoder: latent = encoding x 0.18215
SD_DEVIATION = 0.93  # of its ImageNet latents, times 0.18215


@dataclass(frozen=True)
class Source:
    """What a source holds, and where its code is.

    Attributes:
        latents: its samples are latents, which an autoencoder turns into images.
        scaled: what it holds is what the network sees, if the spec does not say otherwise.
        decoder_scale: what the decoder divides by where a spec gives no factor at all.
        enlarges: side of a decoded image over that of a latent (8 for SD's autoencoder).
        code: reference to an `Opener` of `data.source`, where an extension has it.
    """

    latents: bool
    scaled: bool
    decoder_scale: float | None = None
    enlarges: int = 8
    code: str = ""


SOURCES = Kind(
    "source",
    {
        "fashion16": Source(latents=False, scaled=True, enlarges=1),
        "latents": Source(latents=True, scaled=False),  # packed as the encoder gave them
        "shards": Source(latents=True, scaled=True, decoder_scale=SD_SCALE),  # the official tars
    },
    Source,
)


def stored(source: str) -> Source:
    """Return what `source` holds.

    Raises:
        UserError: there is no such source.
    """
    return lookup(SOURCES, source, "data.source")


def resolve_scales(
    source: str, scale: float | None, decoder_scale: float | None
) -> tuple[float, float | None]:
    """Return `scale` and `decoder_scale` as numbers; the latter `None` where it equals `scale`.

    A spec that gives `scale` alone says that the decoder undoes it. Without `scale`, a store of
    encodings is multiplied by `decoder_scale`, and a store of scaled latents is taken as it is.
    """
    holds = stored(source)
    if scale is None:
        decoder_scale = decoder_scale or holds.decoder_scale
        scale = 1.0 if holds.scaled or decoder_scale is None else decoder_scale
    return scale, decoder_scale if holds.latents and decoder_scale != scale else None
