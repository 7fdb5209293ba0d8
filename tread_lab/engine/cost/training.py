"""What a run costs before it starts: parameters, MACs, FLOPs and bytes under its routes."""

# N tokens of an image, n tokens in a block, d width, p patch, c channels

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from tread_lab.engine.cost import blocks
from tread_lab.engine.cost.bypasses import bypass_cost, projector_cost
from tread_lab.specs.run import ModelSpec, RunSpec

FREQUENCIES = 256  # sinusoidal features from which the noise level is embedded
FLOPS_PER_MAC = 2
TRAIN_PER_FORWARD = 3  # the backward pass costs two forward passes
FP32 = 4  # bytes; weights, EMA and moments stay fp32 in every precision
HALF = 2  # bf16 and fp16


@dataclass(frozen=True)
class Cost:
    """The cost of one run; MACs are of one image's forward pass, as papers count "Gflops" of a DiT.

    Attributes:
        parameters: trainable parameters of the sampled network; routing adds none, a mask decoder
            or a fusion adds its own.
        helpers: trainable parameters that are not sampled: REPA's projector.
        positions: values of fixed tables, stored but not trained.
        tokens: tokens that run each block, from the first block to the last.
        plain_macs: forward pass of the network without routes and without what a bypass adds.
        dense_macs, routed_macs: forward pass without routes, and under the run's routes.
        helper_macs: what the projector adds to a dense and to a routed training pass; the frozen
            encoder's own forward pass is not counted.
        images: training images in all, steps x batch.
        dense_images: those of the steps in which the routes are off.
        activation_bytes: what the forward pass of one image keeps for the backward pass, in the
            steps that keep most (fused attention, no recomputation). A frozen encoder or decoder is
            not counted.
        working_bytes: estimate of what one image needs beside it while a block is computed.
        cast_bytes: copies of the weights that a lower precision needs.
        micro_batch: images of one forward pass on one device.
    """

    parameters: int
    helpers: int
    positions: int
    tokens: tuple[int, ...]
    plain_macs: int
    dense_macs: int
    routed_macs: int
    helper_macs: tuple[int, int]
    images: int
    dense_images: int
    activation_bytes: int
    working_bytes: int
    cast_bytes: int
    micro_batch: int

    @property
    def speedup(self) -> float:
        """Plain over routed MACs: an upper bound, reached when arithmetic decides the step time."""
        return self.plain_macs / self.routed_macs

    @property
    def train_flops_per_image(self) -> int:
        """Forward and backward under the routes."""
        return FLOPS_PER_MAC * TRAIN_PER_FORWARD * (self.routed_macs + self.helper_macs[1])

    @property
    def train_flops(self) -> int:
        """All training steps; optimizer and EMA are not counted."""
        dense = FLOPS_PER_MAC * TRAIN_PER_FORWARD * (self.dense_macs + self.helper_macs[0])
        routed_images = self.images - self.dense_images
        return routed_images * self.train_flops_per_image + self.dense_images * dense

    @property
    def weights_bytes(self) -> int:
        """The fp32 state dict, positions included."""
        return FP32 * (self.parameters + self.positions)

    @property
    def checkpoint_bytes(self) -> int:
        """Weights, their EMA and Adam's two moments; helpers have no EMA."""
        return self.weights_bytes + 3 * FP32 * (self.parameters + self.helpers)

    @property
    def memory_bytes(self) -> int:
        """Estimate of a device's peak: checkpoint, gradients, casts and activations of a pass."""
        return self.memory_at(self.micro_batch)

    def memory_at(self, micro_batch: int) -> int:
        """The same with another number of images in a pass."""
        gradients = FP32 * (self.parameters + self.helpers)
        state = self.checkpoint_bytes + gradients + self.cast_bytes
        return state + micro_batch * (self.activation_bytes + self.working_bytes)


def cost(spec: RunSpec, *, learn_sigma: bool = False, attention: bool = True) -> Cost:
    """The cost of `spec`; specs that differ in nothing that costs share one answer.

    Args:
        learn_sigma: twice the output channels, as in the original DiT.
        attention: count the 2 n^2 d of attention, which some papers leave out.
    """
    return _cost(_Priced(spec, learn_sigma, attention))


class _Priced:
    """A spec by what its cost depends on: neither the seed nor the learning rate has a price."""

    def __init__(self, spec: RunSpec, learn_sigma: bool, attention: bool) -> None:
        self.spec, self.learn_sigma, self.attention = spec, learn_sigma, attention
        train, routed = spec.train, spec.routed_steps
        self._key = (
            *(spec.model, spec.data, spec.routes, spec.bypass, spec.loss, spec.repa),
            *(train.steps, train.batch, routed, spec.precision, spec.fp32_block),
            spec.execution.micro_batch,
            *(learn_sigma, attention),
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Priced) and self._key == other._key


@functools.lru_cache(maxsize=4096)
def _cost(priced: _Priced) -> Cost:
    spec, learn_sigma, attention = priced.spec, priced.learn_sigma, priced.attention
    c_out = spec.data.channels * (2 if learn_sigma else 1)
    tokens = tokens_per_block(spec)
    low = HALF if spec.precision in ("bf16", "fp16") else FP32
    added, helper = bypass_cost(spec, c_out, attention=attention), projector_cost(spec)
    parameters = _parameters(spec, c_out) + added.parameters
    whole = (spec.tokens,) * spec.model.depth
    plain_macs = _forward_macs(spec, whole, c_out, attention)
    most_tokens = tokens if len(spec.routed_steps) == spec.train.steps else whole
    return Cost(
        parameters=parameters,
        helpers=helper.parameters,
        positions=spec.tokens * spec.model.width + added.positions,
        tokens=tokens,
        plain_macs=plain_macs,
        dense_macs=plain_macs + added.macs(spec.tokens),
        routed_macs=_forward_macs(spec, tokens, c_out, attention) + added.macs(min(tokens)),
        helper_macs=(helper.macs(spec.tokens), helper.macs(_aligned(spec, tokens))),
        images=spec.train.steps * spec.train.batch,
        dense_images=(spec.train.steps - len(spec.routed_steps)) * spec.train.batch,
        activation_bytes=_kept_by_network(spec, most_tokens, low)
        + added.activation_bytes(low)
        + helper.activation_bytes(low),
        working_bytes=spec.tokens * (4 * spec.model.width * FP32 + 2 * spec.model.hidden * low),
        cast_bytes=0 if low == FP32 else low * (parameters + helper.parameters),
        micro_batch=min(spec.execution.micro_batch or spec.train.batch, spec.train.batch),
    )


def tokens_per_block(spec: RunSpec) -> tuple[int, ...]:
    """K in blocks i..j of a route, both inclusive; N in all others.

    K = N - floor(s N) for tokens, floor(s U) of U rows less where rows leave whole; for Bernoulli
    selection, whose numbers vary, what is expected.
    """
    tokens = [spec.tokens] * spec.model.depth
    for route in spec.routes:
        for block in route.blocks:
            tokens[block] -= route.routed(spec.tokens)
    return tuple(tokens)


def _kept_by_network(spec: RunSpec, tokens: tuple[int, ...], low: int) -> int:
    """Bytes that all blocks keep, the last norm and its modulated output, and a few images."""
    d, exact = spec.model.width, spec.fp32_blocks
    kept = [
        blocks.kept_bytes(spec.model, n, FP32 if l in exact else low) for l, n in enumerate(tokens)
    ]
    ends = spec.tokens * (2 * d * FP32 + d * low) + 32 * d
    return sum(kept) + ends + 3 * FP32 * spec.data.channels * spec.data.size**2


def _aligned(spec: RunSpec, tokens: tuple[int, ...]) -> int:
    """Tokens that REPA aligns under the routes."""
    return 0 if spec.repa is None else tokens[spec.repa.block_of(spec.model.depth)]


def block_macs(n: int, d: int, *, mlp_ratio: float = 4.0, attention: bool = True) -> int:
    """C(n) = 12 n d^2 + 2 n^2 d + 6 d^2: the published DiT block with an MLP of ratio 4."""
    return blocks.block_macs(_published_block(d, mlp_ratio), n, attention=attention)


def block_parameters(d: int, *, mlp_ratio: float = 4.0) -> int:
    """18 d^2 + 15 d: the published DiT block with an MLP of ratio 4."""
    return blocks.block_parameters(_published_block(d, mlp_ratio))


def _published_block(d: int, mlp_ratio: float) -> ModelSpec:
    return ModelSpec(depth=1, width=d, heads=1, mlp_ratio=mlp_ratio)


def report(spec: RunSpec) -> dict[str, Any]:
    """Everything about the cost of `spec` as plain values, for JSON.

    `learn_sigma` repeats parameters and MACs for an output of twice the channels, the convention
    of the original DiT. `resolutions` repeats MACs and speed-up at one, two and four times the
    image's side.
    """
    this, dit = cost(spec), cost(spec, learn_sigma=True)
    return {
        "model": spec.model.name,
        "routes": [f"{route} at {route.rate:g}" for route in spec.routes],
        "tokens": spec.tokens,
        "tokens_per_block": list(this.tokens),
        **_sizes(this),
        "learn_sigma": _sizes(dit),
        "speedup": this.speedup,
        "resolutions": [_at_scale(spec, scale) for scale in (1, 2, 4)],
        "train_flops_per_image": this.train_flops_per_image,
        "train_flops_per_image_dense": cost(spec.dense()).train_flops_per_image,
        "train_images": this.images,
        "train_flops": this.train_flops,
        "weights_bytes": this.weights_bytes,
        "checkpoint_bytes": this.checkpoint_bytes,
        "memory_bytes_estimate": this.memory_bytes,
    }


def table(spec: RunSpec) -> list[tuple[str, str]]:
    """The same for people: (what, value with unit) in reading order."""
    this = cost(spec)
    routes = ", ".join(f"{route} at rate {route.rate:g}" for route in spec.routes) or "none (dense)"
    rows = [
        ("model", spec.model.name),
        ("routes", routes),
        *([] if str(spec.bypass) == "route" else [("bypass", str(spec.bypass))]),
        ("tokens per block", _runs(this.tokens)),
        (
            "parameters",
            f"{this.parameters:,} ({this.parameters + this.positions:,} with positions)",
        ),
        ("forward, dense", f"{this.dense_macs / 1e9:,.3f} GMAC"),
        ("forward, routed", f"{this.routed_macs / 1e9:,.3f} GMAC"),
    ]
    for at in (_at_scale(spec, scale) for scale in (1, 2, 4)):
        rows.append((f"speed-up at {at['tokens']:,} tokens", f"{at['speedup']:.3f}x at most"))
    return [
        *rows,
        ("training", f"{this.train_flops_per_image / 1e12:.4g} TFLOP/image"),
        ("training, all", f"{this.images:,} images, {this.train_flops:.3e} FLOP"),
        ("checkpoint", amount(this.checkpoint_bytes)),
        ("device memory", f"about {amount(this.memory_bytes)} at {this.micro_batch} images a pass"),
    ]


def amount(size: float) -> str:
    """`2.70 GB` for 2.7e9 bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def _sizes(found: Cost) -> dict[str, int]:
    return {
        "parameters": found.parameters,
        "parameters_with_positions": found.parameters + found.positions,
        "dense_macs": found.dense_macs,
        "routed_macs": found.routed_macs,
    }


def _at_scale(spec: RunSpec, scale: int) -> dict[str, Any]:
    """MACs and speed-up of the same network on images of `scale` times the side."""
    data = dataclasses.replace(spec.data, size=scale * spec.data.size)
    found = cost(dataclasses.replace(spec, data=data, init_from=None))
    tokens = spec.tokens * scale * scale
    macs = {"dense_macs": found.dense_macs, "routed_macs": found.routed_macs}
    return {"tokens": tokens, **macs, "speedup": found.speedup}


def _parameters(spec: RunSpec, c_out: int) -> int:
    d, p, c = spec.model.width, spec.model.patch, spec.data.channels
    patches = (p * p * c + 1) * d
    timestep = (FREQUENCIES * d + d) + (d * d + d)
    labels = (spec.data.classes + 1) * d
    norm = d if spec.model.norm == "rms" else 0
    final = (2 * d * d + 2 * d) + (d + 1) * p * p * c_out + norm
    in_blocks = spec.model.depth * blocks.block_parameters(spec.model)
    return patches + timestep + labels + in_blocks + final


def _forward_macs(spec: RunSpec, tokens: tuple[int, ...], c_out: int, attention: bool) -> int:
    N, d, p, c = spec.tokens, spec.model.width, spec.model.patch, spec.data.channels
    embeddings = N * p * p * c * d + FREQUENCIES * d + d * d
    final = 2 * d * d + N * d * p * p * c_out
    counts = {n: tokens.count(n) for n in set(tokens)}
    macs = {n: blocks.block_macs(spec.model, n, attention=attention) for n in counts}
    return embeddings + sum(k * macs[n] for n, k in counts.items()) + final


def _runs(tokens: tuple[int, ...]) -> str:
    """`2 x 256, 7 x 128, 3 x 256` for tokens block by block."""
    runs: list[list[int]] = []
    for n in tokens:
        if runs and runs[-1][1] == n:
            runs[-1][0] += 1
        else:
            runs.append([1, n])
    return ", ".join(f"{count} x {n}" for count, n in runs)
