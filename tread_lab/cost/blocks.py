"""What one block costs for n tokens, by backbone, and what published systems add to all blocks."""

# n tokens in a block, d width, h hidden width of the MLP, e channels of a scan, r rank, s state

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from tread_lab.config.model import ModelSpec
from tread_lab.config.registry import SYSTEMS, Registry, load
from tread_lab.config.run import RunSpec

FP32 = 4  # bytes


@dataclass(frozen=True)
class BlockCost:
    """The numbers of an architecture's block.

    Attributes:
        macs: (model, n) -> multiply-accumulates, with a scan's recurrence, without elementwise
            work.
        parameters: model -> trainable parameters.
        kept: (model, n, low) -> bytes saved by autograd for the backward pass, each storage once,
            with matrix operands of `low` bytes under CUDA's autocast rules.
        compiled: the same for a compiled block; `None` if only the bound `kept` is known.
        place_parameters: (model, side) -> further trainable parameters, which depend on the side of
            the token grid.
    """

    macs: Callable[[ModelSpec, int], int]
    parameters: Callable[[ModelSpec], int]
    kept: Callable[[ModelSpec, int, int], int]
    compiled: Callable[[ModelSpec, int, int], int] | None = None
    place_parameters: Callable[[ModelSpec, int], int] = lambda model, side: 0


def block_cost(model: ModelSpec, l: int = 0) -> BlockCost:
    """Return the cost of block `l` of `model`, counted if there is no formula."""
    found = BLOCK_COSTS.get(model.backbone)
    if found is None:
        found = importlib.import_module("tread_lab.train.counted").counted  # has torch
    return found if isinstance(found, BlockCost) else found(model, l)


def _dit_macs(model: ModelSpec, n: int) -> int:
    """qkv 3 d^2, projection d^2, MLP 2 d h (SwiGLU 3 d h) per token; attention n^2 d for QK^T and
    again for AV; adaLN 6 d^2 once per image. For h = 4 d: C(n) = 12 n d^2 + 2 n^2 d + 6 d^2."""
    d, h = model.width, model.hidden
    return n * (4 * d * d + _matrices(model) * d * h) + 2 * n * n * d + 6 * d * d


def _dit_parameters(model: ModelSpec) -> int:
    d, h = model.width, model.hidden
    hidden_biases = (_matrices(model) - 1) * h
    mlp = _matrices(model) * d * h + hidden_biases + d
    rms = model.norm == "rms"
    norms = 2 * d * rms + model.qk_norm * (d // model.heads) * (2 if rms else 4)
    return (4 * d * d + 4 * d) + mlp + (6 * d * d + 6 * d) + norms


def _dit_place_parameters(model: ModelSpec, side: int) -> int:
    """A relative bias: (2 side - 1)^2 differences for each head."""
    return model.heads * (2 * side - 1) ** 2 if model.relative_bias else 0


def _dit_kept(model: ModelSpec, n: int, low: int) -> int:
    """Residual stream, normalised values and gated outputs are fp32 (6 d); two modulated inputs,
    qkv 3, attention output (6 d) and the MLP's hidden layer before and after its activation (2 h;
    SwiGLU 4 h) are low. Turned or normalised queries and keys are kept as well, before their norm
    in fp32. Statistics of the norms and of attention are 16 + 4 heads bytes. A relative bias is
    kept as a number for each head and pair of tokens."""
    d, h = model.width, model.hidden
    wide = {"gelu": 2, "swiglu": 4}[model.mlp]
    kept = 6 * d * FP32 + (6 * d + wide * h) * low + 16 + 4 * model.heads
    if model.rope or model.qk_norm:
        kept += 2 * d * low
    if model.qk_norm:
        kept += 16 * model.heads + (2 * d * FP32 + d * low if low < FP32 else 0)
    if model.relative_bias:
        kept += n * model.heads * low
    return n * kept + 24 * d


def _dit_compiled(model: ModelSpec, n: int, low: int) -> int:
    """Inductor keeps the residual stream in fp32 (d) and, all low, what a matrix product or
    attention takes or gives: two modulated inputs, qkv 3, attention, projection and the MLP's
    output (8 d), its hidden layer before and after the activation (2 h; SwiGLU 3 h). Elementwise
    work is done again. Rotated or normalised queries and keys are kept as well, and what attention
    gives for them in its own memory layout."""
    d, h = model.width, model.hidden
    kept = d * FP32 + (8 * d + _matrices(model) * h) * low + 16 + 4 * model.heads
    if model.rope or model.qk_norm:
        kept += 3 * d * low + 16 * model.heads * model.qk_norm
    if model.relative_bias:
        kept += n * model.heads * low
    return n * kept + 24 * d


def _rwkv_macs(model: ModelSpec, n: int) -> int:
    """Key, value, receptance, output 4 d^2, channel mixing 2 d h + d^2, Bi-WKV 6 d per token (two
    sums: both directions and the token's own term); adaLN 6 d^2."""
    d, h = model.width, model.hidden
    return n * (5 * d * d + 2 * d * h + 6 * d) + 6 * d * d


def _rwkv_parameters(model: ModelSpec) -> int:
    d, h = model.width, model.hidden
    spatial, channel = 4 * d * d + 5 * d, d * d + 2 * d * h + 2 * d
    return spatial + channel + 6 * d * d + 6 * d


def _rwkv_kept(model: ModelSpec, n: int, low: int) -> int:
    """As counted: residual, norms, the operands of Bi-WKV and the squared hidden layer are fp32
    (23 d + 2 h); mixed inputs, gates and outputs are low (10 d)."""
    d, h = model.width, model.hidden
    return n * ((23 * d + 2 * h) * FP32 + 10 * d * low + 64) + 24 * d


def _mamba_macs(model: ModelSpec, n: int) -> int:
    """Input and output maps 6 d^2; in each direction the step and state maps e (r + 2 s) + r e, the
    convolution 4 e, the scan 4 e s (delta A, delta x B, a h, C h) per token; adaLN 3 d^2."""
    d, (e, r, s) = model.width, _scan(model)
    return n * (3 * d * e + 2 * e * (2 * r + 2 * s + 4 + 4 * s)) + 3 * d * d


def _mamba_parameters(model: ModelSpec) -> int:
    d, (e, r, s) = model.width, _scan(model)
    direction = 5 * e + e * (r + 2 * s) + (r * e + e) + e * s + e
    return 3 * d * e + 2 * direction + 3 * d * d + 3 * d


def _mamba_kept(model: ModelSpec, n: int, low: int) -> int:
    """As counted: 80 bytes for each channel, 89 in half precision, where the fp32 operands of the
    scan are kept beside their low ones; B and C of both directions (12 s values), and one state in
    16 tokens. The states between are computed again."""
    d, (e, _, s) = model.width, _scan(model)
    scan = s * (12 * FP32 + 2 * e * FP32 // 16)
    return n * ((89 if low < FP32 else 81) * e + scan + 64) + 24 * d


def _matrices(model: ModelSpec) -> int:
    """Maps of width d x h in the MLP."""
    return {"gelu": 2, "swiglu": 3}[model.mlp]


def _scan(model: ModelSpec) -> tuple[int, int, int]:
    """(e, r, s): channels 2 d, rank of the steps ceil(d / 16), state."""
    return 2 * model.width, -(-model.width // 16), model.state


OfBlock = Callable[[ModelSpec, int], BlockCost]
BUILT_IN: dict[str, BlockCost | OfBlock] = {
    "dit": BlockCost(_dit_macs, _dit_parameters, _dit_kept, _dit_compiled, _dit_place_parameters),
    "rwkv": BlockCost(_rwkv_macs, _rwkv_parameters, _rwkv_kept),
    "mamba": BlockCost(_mamba_macs, _mamba_parameters, _mamba_kept),
}
BLOCK_COSTS: Registry[BlockCost | OfBlock] = Registry("backbone", BUILT_IN)


Tokens = tuple[int, ...]  # of an image in each block, from the first to the last


@dataclass(frozen=True)
class Added:
    """Cost added by a part.

    Attributes:
        parameters, positions: trained values, and values of fixed tables.
        macs: tokens in each block -> MACs of one image's forward pass.
        activations: values kept per image for the backward pass: of the residual width, and of
            operands and results of matrix products.
        unsampled: parameters that sampling does not need.
    """

    parameters: int = 0
    positions: int = 0
    macs: Callable[[Tokens], int] = lambda tokens: 0
    activations: tuple[int, int] = (0, 0)
    unsampled: int = 0

    def activation_bytes(self, low: int) -> int:
        """Return the bytes of the activations; matrix products use `low` bytes per value."""
        return 4 * self.activations[0] + low * self.activations[1]


NOTHING = Added()


@dataclass(frozen=True)
class Beside:
    """Cost of parts beside the network that are trained but not sampled.

    Attributes:
        auxiliary: values trained with the network.
        averages_network: whether an average of the network without its last layer has a forward
            pass over all tokens of every batch.
        averaged: further averaged values.
        buffers: values that are neither trained nor averaged from trained ones.
    """

    auxiliary: Added = NOTHING
    averages_network: bool = False
    averaged: Added = NOTHING
    buffers: int = 0


class Priced:
    """The cost of a published system. By default it adds nothing."""

    def added(self, spec: RunSpec, c_out: int) -> Added:
        """Return the added cost of the sampled network with `c_out` output channels."""
        return NOTHING

    def beside(self, spec: RunSpec) -> Beside:
        """Return the cost of parts trained or averaged beside the network."""
        return Beside()

    def passes_again(self, spec: RunSpec) -> bool:
        """Return whether a routed step has a second, dense pass of the network."""
        return False


def priced_systems(spec: RunSpec) -> tuple[Priced, ...]:
    """Return the systems of a run, in the order in which they join its steps."""
    asked = {part.system for part in spec.systems.values()}
    return tuple(_system(name) for name in SYSTEMS if name in asked)


@functools.cache
def _system(name: str) -> Priced:
    system: Priced = load(name, "SYSTEM")
    return system
