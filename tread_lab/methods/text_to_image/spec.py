"""Text to image in a run's spec: a frozen text encoder of captions, and its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from tread_lab.config.decode import unhashed, within
from tread_lab.config.errors import UserError
from tread_lab.config.registry import ConditionSpec, Registry
from tread_lab.config.routes import RouteBypass
from tread_lab.config.run import RunSpec

LONGEST = 77  # tokens of a text that a CLIP takes, its begin and end included
# text encoder -> E, the width of its tokens; those of CLIP ViT-B, ViT-L and OpenCLIP's ViT-H
TEXT_ENCODERS = Registry("text encoder", {"clip-base": 512, "clip-large": 768, "clip-huge": 1024})


@dataclass(frozen=True, kw_only=True)
class CaptionSpec(ConditionSpec):
    """Text to image: the network sees the tokens of a caption instead of a class.

    TREAD reports MS-COCO results of a 130M-parameter model without its text conditioning. Here the
    last hidden states of a frozen CLIP, linearly projected, join the image tokens in every block,
    as in U-ViT (Bao et al. 2023, section 5.3), and are never routed. DiT-B/2 then has 130.1M
    parameters; cross-attention in 12 blocks would add 28M. A dropped caption is the empty text.
    Shorthand: the encoder's name.

    Attributes:
        encoder: `clip-base`, `clip-large` (the text encoder of Stable Diffusion 1) or `clip-huge`.
        tokens: T, text tokens of a caption: longer ones are cut, shorter ones padded.
        path: folder of the encoder and its tokenizer as transformers saves them, else
            TREAD_LAB_TEXT_ENCODER; not part of the signature.
    """

    system: ClassVar[str] = "text_to_image"
    in_label: ClassVar[bool] = False  # the data say it

    encoder: Annotated[str, TEXT_ENCODERS] = "clip-large"
    tokens: Annotated[int, within(f"[2, {LONGEST}]")] = LONGEST
    path: str | None = unhashed(None)

    def __str__(self) -> str:
        return f"captions by {self.encoder}"

    @staticmethod
    def from_shorthand(value: object) -> dict[str, object]:
        """Return the fields of an encoder's name."""
        return {"encoder": value}

    @property
    def width(self) -> int:
        """E, the width of the encoder's tokens."""
        return TEXT_ENCODERS[self.encoder]

    def resolved(self, run: RunSpec) -> CaptionSpec:
        """Refuse networks that do not support text tokens."""
        if not run.model.takes_text:
            raise UserError(
                "captions: requires a network without scans, rotary or relative positions, got "
                f"{run.model.name}. Try DiT-B/2."
            )
        if not isinstance(run.bypass, RouteBypass):
            raise UserError(f"captions: must not be combined with bypass {run.bypass}")
        if any(route.selection == "importance" for route in run.routes):
            raise UserError(
                "captions: must not be combined with the selection importance. Try random."
            )
        return self
