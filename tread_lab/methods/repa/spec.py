"""REPA in a run's spec: the field `repa`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tread_lab.config.decode import Count, Positive, settle, unhashed, within
from tread_lab.config.errors import UserError
from tread_lab.config.registry import Registry, SystemSpec
from tread_lab.config.routes import Position, block_index
from tread_lab.config.run import RunSpec

# What is done to an image before the encoder and to its features after; another text is another
# cache of features.
PREPROCESSING = (
    "normalised, bicubic to 14 pixels a token, no antialias, no clamp; positions antialiased"
)
SHALLOW = 12  # blocks of S and B, where the published alignment is after the fourth

# encoder -> width of its features
ENCODERS = Registry(
    "encoder",
    {
        "fashion16-v1": 64,
        "dinov2-small": 384,
        "dinov2-base": 768,
        "dinov2-large": 1024,
        "dinov2-giant": 1536,
        "dinov3-small": 384,
        "dinov3-base": 768,
        "dinov3-large": 1024,
    },
)


def check_name(encoder: str) -> None:
    """Refuse a name that is neither in the table nor a hub ID (with a slash)."""
    if "/" not in encoder:
        ENCODERS(encoder)


@dataclass(frozen=True, kw_only=True)
class RepaSpec(SystemSpec):
    """- weight * cos(projector(h), encoder(x0)), over tokens that ran the block (Yu et al. 2025).

    Tokens that skip the block are not aligned. The projector is trained but not sampled. iREPA
    (Singh et al. 2025) is `{projector: conv, spatial_norm: 0.6}`.

    Attributes:
        encoder: encoder of the target features of the clean image: a name, or the hub ID of any
            vision transformer of transformers.
        target: encoded image: the stored `image` (`images.npy` beside the latents) as in the
            published code, or the `decoded` latent.
        block: h is the residual stream after this block; REPA's "depth 8" is block 7. By default
            block 3 of S and B (12 blocks), block 7 of L and XL, as in REPA.
        weight: REPA's coefficient.
        projector: an MLP of three layers (`mlp`), or one 3 x 3 convolution over the grid (`conv`).
        hidden: width of the MLP.
        spatial_norm: a; features become (f - a mean) / deviation over an image's tokens; `None` for
            unchanged features.
        path: folder or hub ID of the encoder, else TREAD_LAB_ENCODER or the ID in `encoder`; not
            part of the signature.
        width: width of the features of a hub ID.
    """

    system: ClassVar[str] = "repa"

    encoder: Annotated[str, check_name] = "dinov2-base"
    target: Literal["image", "decoded"] = "image"
    block: Position | None = None
    weight: Positive = 0.5
    projector: Literal["mlp", "conv"] = "mlp"
    hidden: Count = 2048
    spatial_norm: Annotated[float, within("[0, 1]")] | None = None
    path: str | None = unhashed(None)
    width: Count | None = None

    def __post_init__(self) -> None:
        if (self.width is None) != (self.encoder in ENCODERS):
            remedy = "null" if self.encoder in ENCODERS else "its hidden_size, such as 768"
            got = f"got {self.width} for {self.encoder}"
            raise UserError(
                f"width: must be given with a hub ID and only then, {got}. Try {remedy}."
            )
        if self.projector == "conv":
            settle(self, hidden=RepaSpec.hidden)

    def __str__(self) -> str:
        conv, norm = self.projector == "conv", self.spatial_norm is not None
        own = f" {self.projector}" * conv + f" norm={self.spatial_norm}" * norm
        return f"repa {self.weight:g} at {self.block}{own}"

    @property
    def features(self) -> int:
        """Width of the encoder's features."""
        return self.width or ENCODERS[self.encoder]

    def resolved(self, run: RunSpec) -> RepaSpec:
        """Return the spec with its block number; image samples are encoded directly."""
        target = self.target if run.data.holds.latents else "image"
        block = self.block_of(run.model.depth)
        inside = any(start <= block < end for start, end in run.spans)
        if self.projector == "conv" and inside:
            raise UserError(
                f"repa.projector: must be mlp for a block inside a route (got block {block}), whose"
                " tokens have no grid. Try another repa.block."
            )
        return dataclasses.replace(self, block=block, target=target)

    def block_of(self, depth: int) -> int:
        """Return the aligned block of a network of `depth` blocks.

        Raises:
            UserError: the block is outside the network.
        """
        if self.block is None:
            return min(3 if depth <= SHALLOW else 7, depth - 1)
        block = block_index(self.block, depth)
        if not 0 <= block < depth:
            raise UserError(f"repa.block: must be within blocks 0..{depth - 1}, got {block}")
        return block
