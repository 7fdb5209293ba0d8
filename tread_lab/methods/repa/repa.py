"""REPA as it joins a run: what it adds, costs and reads."""

# N tokens of an image, d width, h hidden width, e width of the features

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import Added, Beside, Tokens
from tread_lab.methods.repa.spec import RepaSpec
from tread_lab.train.joining import Joining, Part, System

if TYPE_CHECKING:
    from tread_lab.data.source import Samples


class Repa(System):
    """The field `repa` of a run."""

    def part(self, run: Joining) -> Part:
        from tread_lab.methods.repa.alignment import Aligned

        return Aligned(run)

    def beside(self, spec: RunSpec) -> Beside:
        """The projector: d h + h h + h e for each aligned token, 9 d e of a convolution."""
        repa, block = RepaSpec.of(spec), RepaSpec.of(spec).block_of(spec.model.depth)
        d, h, e = spec.model.width, repa.hidden, repa.features
        conv = repa.projector == "conv"
        products = 9 * d * e if conv else d * h + h * h + h * e
        biases, between = (e, 0) if conv else (h + h + e, 4 * h)
        kept = (spec.tokens * (d + 3 * e), spec.tokens * (d + between))

        def macs(tokens: Tokens) -> int:
            return (spec.tokens if conv else tokens[block]) * products

        return Beside(Added(products + biases, macs=macs, activations=kept))

    def files(self, spec: RunSpec) -> Hashable:
        return spec.repa

    def network_folder(self, spec: RunSpec) -> Path | None:
        from tread_lab.methods.repa.encoder import weights_folder

        return weights_folder(RepaSpec.of(spec))

    def check(self, spec: RunSpec, train: Samples | None, heldout: Samples) -> None:
        from tread_lab.methods.repa.encoder import check_encoder

        if train is not None:
            check_encoder(RepaSpec.of(spec), train)

    def provenance(
        self, spec: RunSpec, data: str, train: Samples, heldout: Samples
    ) -> Mapping[str, str]:
        from tread_lab.methods.repa.encoder import SHIPPED, encoder_digest

        repa = RepaSpec.of(spec)
        name = f"weights repa {repa.encoder}"  # a metric may see through another of its name
        return {} if repa.encoder in SHIPPED else {name: encoder_digest(repa)}


SYSTEM = Repa()
