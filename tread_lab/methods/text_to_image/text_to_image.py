"""Text to image as it joins a run: what it adds, costs and reads."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tread_lab.config.run import RunSpec
from tread_lab.methods.text_to_image.spec import CaptionSpec
from tread_lab.train.joining import Condition, Joining, Part, System

if TYPE_CHECKING:
    import torch

    from tread_lab.data.source import Samples
    from tread_lab.records.run_folder import RunFolder


class TextToImage(System):
    """The field `captions` of a run."""

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        return {"text_width": CaptionSpec.of(spec).width}

    def part(self, run: Joining) -> Part:
        from tread_lab.methods.text_to_image.captions import Captioned

        return Captioned(run)

    def condition(self, spec: RunSpec, folder: RunFolder, device: torch.device) -> Condition:
        from tread_lab.methods.text_to_image.captions import heldout_captions

        return heldout_captions(spec, folder, device)

    def files(self, spec: RunSpec) -> Hashable:
        return spec.captions

    def network_folder(self, spec: RunSpec) -> Path:
        from tread_lab.methods.text_to_image.text_encoder import encoder_folder

        return encoder_folder(CaptionSpec.of(spec))

    def check(self, spec: RunSpec, train: Samples | None, heldout: Samples) -> None:
        from tread_lab.methods.text_to_image.captions import check_captions

        for samples in (train, heldout):
            if samples is not None:
                check_captions(CaptionSpec.of(spec), samples)

    def provenance(
        self, spec: RunSpec, data: str, train: Samples, heldout: Samples
    ) -> Mapping[str, str]:
        from tread_lab.methods.text_to_image.captions import captions_digest, captions_of

        captions = [texts for part in (train, heldout) for texts in captions_of(part) or ()]
        return {**self.measured_with(spec), f"captions {data}": captions_digest(captions)}

    def measured_with(self, spec: RunSpec) -> Mapping[str, str]:
        from tread_lab.methods.text_to_image.text_encoder import text_encoder_digest

        captions = CaptionSpec.of(spec)
        return {f"weights {captions.encoder}": text_encoder_digest(captions)}


SYSTEM = TextToImage()
