"""MaskDiT as it joins a run: what it adds, costs and reads."""

# N tokens of an image, n kept tokens, d width, e width of the decoder, h hidden width, p patch

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import Added, Tokens
from tread_lab.methods.maskdit.spec import MaskBypass
from tread_lab.train.joining import System


class MaskDiT(System):
    """The bypass `mask`."""

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        from tread_lab.methods.maskdit.decoder import MaskDecoder

        side = spec.data.size // spec.model.patch
        return {
            "re_enter": MaskDecoder(spec.model, MaskBypass.of(spec), side=side, spans=spec.spans)
        }

    def added(self, spec: RunSpec, c_out: int) -> Added:
        """Adapter on the kept tokens, or on all with `fill: entry`; `depth` blocks on all places,
        and a final layer of width e instead of d; modulations are conditioned by width d."""
        decoder = MaskBypass.of(spec)
        N, d, e, p = spec.tokens, spec.model.width, decoder.width, spec.model.patch
        h, out = int(e * spec.model.mlp_ratio), p * p * c_out
        adapter = (2 * d * d + 2 * d) + (d * e + e)
        block = (4 * e * e + 4 * e) + (2 * e * h + h + e) + (6 * d * e + 6 * e)
        final = (2 * d * e + 2 * e) + (e + 1) * out - (2 * d * d + 2 * d) - (d + 1) * out
        final -= d if spec.model.norm == "rms" else 0  # the decoder's last norm has no parameters
        block_macs = N * (4 * e * e + 2 * e * h) + 2 * N * N * e + 6 * d * e
        final_macs = 2 * d * e + N * e * out - 2 * d * d - N * d * out

        def macs(tokens: Tokens) -> int:
            mapped = N if decoder.fill == "entry" else min(tokens)
            return 2 * d * d + mapped * d * e + decoder.depth * block_macs + final_macs

        token = e if decoder.fill == "mask_token" else 0
        parameters = adapter + token + decoder.depth * block + final
        kept = (6 * N * e * decoder.depth, (6 * e + 2 * h) * N * decoder.depth)
        return Added(parameters, N * e, macs, kept)


SYSTEM = MaskDiT()
