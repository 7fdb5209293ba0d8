"""What stands beside the backbone costs: decoder, interpolater, fusion, projector and head."""

# N tokens of an image, d width, e width of the decoder, h hidden width, p patch, c channels

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tread_lab.engine.cost.blocks import FP32, block_cost
from tread_lab.specs.bypass import MaskBypass, SprintBypass
from tread_lab.specs.errors import lookup
from tread_lab.specs.objective import DiscriminationLoss
from tread_lab.specs.run import RunSpec


@dataclass(frozen=True)
class Added:
    """What a part adds to the plain network.

    Attributes:
        parameters, positions: trained values, and those of fixed tables.
        macs: tokens that ran the route's blocks -> MACs of one image's forward pass.
        activations: values of the residual width, and of what matrix products read and write, that
            one image keeps for the backward pass.
        unsampled: those of the parameters that no sampling needs.
    """

    parameters: int = 0
    positions: int = 0
    macs: Callable[[int], int] = lambda n: 0
    activations: tuple[int, int] = (0, 0)
    unsampled: int = 0

    def activation_bytes(self, low: int) -> int:
        """Return the bytes of the activations; matrix products work on `low` bytes a value."""
        return 4 * self.activations[0] + low * self.activations[1]


def bypass_cost(spec: RunSpec, c_out: int) -> Added:
    """Return what the bypass of `spec` adds; a route adds nothing."""
    return lookup(BYPASS_COSTS, spec.bypass.kind, "bypass")(spec, c_out)


def projector_cost(spec: RunSpec) -> Added:
    """REPA's projector: d h + h h + h e for each aligned token."""
    if spec.repa is None:
        return Added()
    d, h, e = spec.model.width, spec.repa.hidden, spec.repa.features
    products = d * h + h * h + h * e
    kept = (spec.tokens * (d + 3 * e), spec.tokens * (d + 4 * h))
    return Added(products + h + h + e, macs=lambda n: n * products, activations=kept)


def head_cost(spec: RunSpec) -> Added:
    """SD-DiT's head: d h + h h + h b + b K for each token that the encoder sees."""
    if not isinstance(spec.loss, DiscriminationLoss):
        return Added()
    d, h, b, K = spec.model.width, spec.loss.hidden, spec.loss.bottleneck, spec.loss.prototypes
    products = d * h + h * h + h * b + b * K
    kept = (spec.tokens * (2 * K + 2 * b), spec.tokens * (d + 4 * h + b))
    return Added(products + h + h + b, macs=lambda n: n * products, activations=kept)


def _fusion(spec: RunSpec, c_out: int) -> Added:
    """W [deep; shallow] + b on all places, 2 d^2 each, and a mask token if it is learned."""
    bypass = spec.bypass
    assert isinstance(bypass, SprintBypass)
    N, d = spec.tokens, spec.model.width
    token = d if bypass.mask_token == "learned" else 0
    fixed = d - token
    return Added(2 * d * d + d + token, fixed, lambda n: N * 2 * d * d, (0, 2 * N * d))


def _side_interpolater(spec: RunSpec, c_out: int) -> Added:
    """A block on all places where tokens are masked, a mask token, and N d trained positions."""
    model, N, block = spec.model, spec.tokens, block_cost(spec.model)
    positions, token = N * model.width, model.width
    side = spec.data.size // model.patch
    unsampled = block.parameters(model) + block.place_parameters(model, side) + token
    in_block = block.kept(model, N, FP32) // FP32

    def macs(n: int) -> int:
        return block.macs(model, N) if n < N else 0

    return Added(unsampled + positions, 0, macs, (in_block, 0), unsampled)


def _decoder(spec: RunSpec, c_out: int) -> Added:
    """Adapter on the kept tokens, or on all with `fill: entry`; `depth` blocks on all places, and a
    final layer of width e instead of d; modulations are conditioned by width d."""
    decoder = spec.bypass
    assert isinstance(decoder, MaskBypass)
    N, d, e, p = spec.tokens, spec.model.width, decoder.width, spec.model.patch
    h, out = int(e * spec.model.mlp_ratio), p * p * c_out
    adapter = (2 * d * d + 2 * d) + (d * e + e)
    block = (4 * e * e + 4 * e) + (2 * e * h + h + e) + (6 * d * e + 6 * e)
    final = (2 * d * e + 2 * e) + (e + 1) * out - (2 * d * d + 2 * d) - (d + 1) * out
    final -= d if spec.model.norm == "rms" else 0  # the decoder's last norm has no parameters
    block_macs = N * (4 * e * e + 2 * e * h) + 2 * N * N * e + 6 * d * e
    final_macs = 2 * d * e + N * e * out - 2 * d * d - N * d * out

    def macs(n: int) -> int:
        mapped = N if decoder.fill == "entry" else n
        return 2 * d * d + mapped * d * e + decoder.depth * block_macs + final_macs

    token = e if decoder.fill == "mask_token" else 0
    parameters = adapter + token + decoder.depth * block + final
    kept = (6 * N * e * decoder.depth, (6 * e + 2 * h) * N * decoder.depth)
    return Added(parameters, N * e, macs, kept)


BYPASS_COSTS: dict[str, Callable[[RunSpec, int], Added]] = {
    "route": lambda spec, c_out: Added(),
    "mask": _decoder,
    "mdt": _side_interpolater,
    "sprint": _fusion,
}
