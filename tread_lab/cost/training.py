"""Cost of a run and of its evaluations before they start: parameters, MACs, FLOPs and bytes."""

# N tokens of an image, n tokens in a block, d width, p patch, c channels

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tread_lab.config.evaluation import EvaluationSpec, HeldoutSpec, SamplerSpec, SamplesSpec
from tread_lab.config.guidance import routes_taken
from tread_lab.config.recipe import outputs
from tread_lab.config.routes import RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.units import amount
from tread_lab.cost.blocks import FP32, Added, block_cost, priced_systems

FREQUENCIES = 256  # sinusoidal features from which the noise level is embedded
FLOPS_PER_MAC = 2
TRAIN_PER_FORWARD = 3  # the backward pass costs two forward passes
HALF = 2  # bytes of bf16 and fp16; weights, EMA and moments stay fp32 in every precision


@dataclass(frozen=True)
class Step:
    """MACs of one image in a training step, by forward pass.

    Attributes:
        network: the network, under the routes of the step.
        again: its second pass, under `loss: both`.
        auxiliary: projector and head; the frozen encoder's own forward pass is not counted.
        teacher: a teacher, which has no backward pass.
    """

    network: int
    again: int
    auxiliary: int
    teacher: int

    @property
    def work(self) -> float:
        """All forward and backward passes of the network and its teacher."""
        return self.network + self.again + self.teacher / TRAIN_PER_FORWARD

    @property
    def flops(self) -> int:
        """Forward and backward."""
        trained = self.network + self.again + self.auxiliary
        return FLOPS_PER_MAC * (TRAIN_PER_FORWARD * trained + self.teacher)


@dataclass(frozen=True)
class Cost:
    """Cost of one run; MACs count one image's forward pass, like the "Gflops" of DiT papers.

    Attributes:
        parameters: trainable parameters of the network, including a mask decoder, side-interpolater
            or fusion; routing adds none.
        unsampled: parameters that sampling does not need: the side-interpolater's block.
        auxiliary: trainable parameters that are not sampled: REPA's projector, SD-DiT's head.
        teacher: averaged parameters of a teacher, and its buffers.
        averages: number of stored averages: the EMA, and those for snapshots.
        positions: values of fixed tables, stored but not trained.
        tokens: image tokens in each block, first to last; caption tokens are in all blocks.
        plain_macs: forward pass of the network without routes and bypass.
        dense, routed: a step without and with the run's routes.
        step: the routed step; the dense step if routes are never on.
        phases: (images, FLOPs per image) of each part of training with constant routes.
        activation_bytes: bytes per image kept for the backward pass, in the largest step (fused
            attention, no recomputation), without frozen encoders and decoders.
        working_bytes: estimated further bytes per image while a block is computed.
        cast_bytes: copies of the weights that a lower precision needs.
        micro_batch: images of one forward pass on one device.
    """

    parameters: int
    unsampled: int
    auxiliary: int
    teacher: int
    averages: int
    positions: int
    tokens: tuple[int, ...]
    plain_macs: int
    dense: Step
    routed: Step
    step: Step
    phases: tuple[tuple[int, int], ...]
    activation_bytes: int
    working_bytes: int
    cast_bytes: int
    micro_batch: int

    @property
    def images(self) -> int:
        """Number of training images, steps x batch."""
        return sum(images for images, _ in self.phases)

    @property
    def speedup(self) -> float:
        """Plain MACs over the MACs of a step with all its passes: an upper bound, reached if
        arithmetic dominates the step time."""
        return self.plain_macs / self.step.work

    @property
    def train_flops(self) -> int:
        """All training steps; optimizer and EMA are not counted."""
        return self.flops_of(self.images)

    def flops_of(self, images: int) -> int:
        """Return the FLOPs of training on the run's first `images` images."""
        spent = 0
        for most, flops in self.phases:
            spent += min(images, most) * flops
            images -= min(images, most)
        return spent

    @property
    def weights_bytes(self) -> int:
        """The fp32 state dict, positions included."""
        return FP32 * (self.parameters + self.positions)

    @property
    def checkpoint_bytes(self) -> int:
        """Weights and their averages; for a run that trains, also Adam's two moments and a teacher.
        Auxiliary parameters have no average."""
        moments = 2 if self.images else 0
        state = moments * (self.parameters + self.auxiliary) + self.auxiliary + self.teacher
        state += self.averages * self.parameters
        return self.weights_bytes + FP32 * state

    @property
    def memory_bytes(self) -> int:
        """Estimated peak of a device: checkpoint, gradients, casts and activations of a pass;
        without training, the checkpoint only."""
        return self.memory_at(self.micro_batch)

    def memory_at(self, micro_batch: int) -> int:
        """Return the same with another number of images in a pass."""
        if not self.images:
            return self.checkpoint_bytes
        gradients = FP32 * (self.parameters + self.auxiliary)
        state = self.checkpoint_bytes + gradients + self.cast_bytes
        return state + micro_batch * (self.activation_bytes + self.working_bytes)


_COSTS: dict[object, Cost] = {}  # by all that a cost depends on: seeds and rates have no price


def cost(spec: RunSpec, *, learn_sigma: bool = False, compiled: bool = False) -> Cost:
    """Return the cost of `spec`, cached for specs of equal cost.

    Args:
        learn_sigma: count twice the output channels for every process, as in the original DiT.
        compiled: with the memory of compiled blocks.
    """
    per_channel = 2 if learn_sigma else outputs(spec.process)
    key = (
        *(spec.model, spec.data, spec.routes, *spec.systems.items()),
        *(spec.phases, spec.train.batch, spec.precision, spec.fp32_block),
        *(spec.execution.micro_batch, per_channel, compiled, spec.train.ema.snapshots > 0),
    )
    if key not in _COSTS:
        _COSTS[key] = _cost(spec, spec.data.channels * per_channel, compiled)
    return _COSTS[key]


def _cost(spec: RunSpec, c_out: int, compiled: bool) -> Cost:
    tokens, whole = tokens_per_block(spec, spec.routes), tokens_per_block(spec, ())
    low = HALF if spec.precision in ("bf16", "fp16") else FP32
    systems = priced_systems(spec)
    within = [system.added(spec, c_out) for system in systems]
    beside = [system.beside(spec) for system in systems]
    auxiliary = [part.auxiliary for part in beside]
    parameters = _parameters(spec, c_out) + sum(part.parameters for part in within)
    trained_beside = sum(part.parameters for part in auxiliary)
    plain_macs = _forward_macs(spec, whole, c_out)
    on = any(routes for _, routes in spec.phases)
    again = on and any(system.passes_again(spec) for system in systems)
    again_bytes = _kept_by_network(spec, whole, low, compiled) if again else 0
    averages = [part for part in beside if part.averages_network]
    averaged = [part.averaged for part in averages]
    encoder = len(averages) * (plain_macs - _final_macs(spec, c_out))

    def step(seen: tuple[int, ...], *, routed: bool) -> Step:
        return Step(
            network=_forward_macs(spec, seen, c_out) + _macs(within, seen),
            again=plain_macs + _macs(within, whole) if routed and again else 0,
            auxiliary=_macs(auxiliary, seen),
            teacher=encoder + _macs(averaged, seen),
        )

    dense, routed = step(whole, routed=False), step(tokens, routed=True)
    seen_in = {routes: tokens_per_block(spec, routes) for _, routes in spec.phases}
    flops = {routes: step(seen, routed=bool(routes)).flops for routes, seen in seen_in.items()}
    kept = [_kept_by_network(spec, seen, low, compiled) for seen in seen_in.values()]
    averaged_values = _averaged_network(spec) if averages else 0
    averaged_values += sum(part.buffers for part in averages)
    return Cost(
        parameters=parameters,
        unsampled=sum(part.unsampled for part in within),
        auxiliary=trained_beside,
        teacher=averaged_values + sum(part.parameters for part in averaged),
        averages=3 if spec.train.ema.snapshots else 1,
        positions=_positions(spec)[0] + sum(part.positions for part in within),
        tokens=tokens,
        plain_macs=plain_macs,
        dense=dense,
        routed=routed,
        step=routed if on else dense,
        phases=tuple((spec.train.batch * len(part), flops[routes]) for part, routes in spec.phases),
        activation_bytes=max(kept, default=0)
        + again_bytes
        + sum(part.activation_bytes(low) for part in (*within, *auxiliary)),
        working_bytes=(spec.tokens + spec.text_tokens)
        * (4 * spec.model.width * FP32 + 2 * spec.model.hidden * low),
        cast_bytes=0 if low == FP32 else low * (parameters + trained_beside),
        micro_batch=min(spec.execution.micro_batch or spec.train.batch, spec.train.batch),
    )


def _macs(parts: Iterable[Added], tokens: tuple[int, ...]) -> int:
    return sum(part.macs(tokens) for part in parts)


def tokens_per_block(spec: RunSpec, routes: Iterable[RouteSpec]) -> tuple[int, ...]:
    """K in blocks i..j of a route, both inclusive; N in all others.

    K = N - floor(s N) for tokens; for rows, N minus floor(s U) of U rows; for Bernoulli selection
    the expected number.
    """
    tokens = [spec.tokens] * spec.model.depth
    for route in routes:
        for block in route.blocks:
            tokens[block] -= route.routed(spec.tokens)
    return tuple(tokens)


def _kept_by_network(spec: RunSpec, tokens: tuple[int, ...], low: int, compiled: bool) -> int:
    """Bytes that all blocks keep, the last norm and its modulated output, and a few images."""
    d, exact, T = spec.model.width, spec.fp32_blocks, spec.text_tokens
    lows = [FP32 if l in exact else low for l in range(len(tokens))]
    blocks = [block_cost(spec.model, l) for l in range(len(tokens))]
    count = [block.compiled if compiled and block.compiled else block.kept for block in blocks]
    alike = Counter(zip(count, tokens, lows))
    kept = [times * by(spec.model, n + T, bits) for (by, n, bits), times in alike.items()]
    ends = spec.tokens * (2 * d * FP32 + d * low) + 32 * d
    return sum(kept) + ends + 3 * FP32 * spec.data.channels * spec.data.size**2


def _averaged_network(spec: RunSpec) -> int:
    """Values of an average of the network without its last layer, fixed positions included."""
    c = spec.data.channels
    return _parameters(spec, c) - _final_parameters(spec, c) + _positions(spec)[0]


def _parameters(spec: RunSpec, c_out: int) -> int:
    d, p, c = spec.model.width, spec.model.patch, spec.data.channels
    patches = (p * p * c + 1) * d
    timestep = (FREQUENCIES * d + d) + (d * d + d)
    rows = spec.data.classes + 1 if spec.condition is None else spec.condition.width + 1
    blocks, side = [block_cost(spec.model, l) for l in range(spec.model.depth)], spec.data.size // p
    in_blocks = sum(b.parameters(spec.model) + b.place_parameters(spec.model, side) for b in blocks)
    ends = patches + timestep + rows * d + _final_parameters(spec, c_out) + _positions(spec)[1]
    return ends + in_blocks


def _final_parameters(spec: RunSpec, c_out: int) -> int:
    d, p = spec.model.width, spec.model.patch
    norm = d if spec.model.norm == "rms" else 0
    return (2 * d * d + 2 * d) + (d + 1) * p * p * c_out + norm


def _positions(spec: RunSpec) -> tuple[int, int]:
    """Return the fixed and the trained values of the positions that the tokens have at first."""
    values = spec.tokens * spec.model.width
    return (0, values) if spec.model.trained_positions else (values, 0)


def _forward_macs(spec: RunSpec, tokens: tuple[int, ...], c_out: int) -> int:
    N, d, p, c = spec.tokens, spec.model.width, spec.model.patch, spec.data.channels
    embeddings = N * p * p * c * d + FREQUENCIES * d + d * d
    if spec.condition is not None:
        embeddings += spec.text_tokens * spec.condition.width * d
    alike = Counter((block_cost(spec.model, l), n + spec.text_tokens) for l, n in enumerate(tokens))
    in_blocks = sum(count * block.macs(spec.model, n) for (block, n), count in alike.items())
    return embeddings + in_blocks + _final_macs(spec, c_out)


def block_macs(spec: RunSpec, l: int, n: int) -> int:
    """Return the MACs of block `l` for n tokens of an image and all of a caption."""
    return block_cost(spec.model, l).macs(spec.model, n + spec.text_tokens)


def _final_macs(spec: RunSpec, c_out: int) -> int:
    d, p = spec.model.width, spec.model.patch
    return 2 * d * d + spec.tokens * d * p * p * c_out


CALLS = {"heun": 2, "heun_full": 2}  # network calls of a step; one of every other solver


def _routed_macs(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """MACs of a pass whose routes have another rate; a rate too low to route a token is dense."""
    rated = (dataclasses.replace(route, rate=rate, rate_end=None) for route in routes)
    active = tuple(route for route in rated if route.routed(spec.tokens))
    run_cost = cost(dataclasses.replace(spec, routes=active or spec.routes, init_from=None))
    return run_cost.routed.network if active else run_cost.dense.network


def _macs_without_path(spec: RunSpec, routes: tuple[RouteSpec, ...], rate: float) -> int:
    """Return the MACs of a pass in which no token runs the blocks of a route."""
    skipped = [l for route in routes for l in route.blocks]
    text = spec.text_tokens > 0  # a caption runs the blocks all the same
    rest = [block_macs(spec, l, spec.tokens) - text * block_macs(spec, l, 0) for l in skipped]
    return cost(spec).dense.network - sum(rest)


PATH_MACS: dict[str, Callable[[RunSpec, tuple[RouteSpec, ...], float], int]] = {
    "full": _routed_macs,
    "dropped": _macs_without_path,
}


def pass_flops(spec: RunSpec, evaluation: EvaluationSpec) -> int:
    """Return the FLOPs of all network calls of an evaluation, for forecasts.

    Every branch of a guidance counts at every call, at the mean of its first and last rate.
    """
    if isinstance(evaluation, SamplesSpec):
        return evaluation.images * _image_flops(spec, evaluation.sampler)
    run_cost, both = cost(spec), isinstance(evaluation, HeldoutSpec) and bool(spec.routes)
    macs_each = run_cost.dense.network + (run_cost.routed.network if both else 0)
    return evaluation.images * evaluation.levels * FLOPS_PER_MAC * macs_each


def _image_flops(spec: RunSpec, sampler: SamplerSpec) -> int:
    routes = routes_taken(spec, sampler.guidance)
    calls = sampler.steps * CALLS.get(sampler.solver, 1)
    branches = sampler.guidance.branches
    rates = ((branch, (branch.rate.first + branch.rate.last) / 2) for branch in branches)
    macs = sum(PATH_MACS[branch.path](spec, routes, rate) for branch, rate in rates)
    return FLOPS_PER_MAC * calls * macs


def report(spec: RunSpec) -> dict[str, Any]:
    """Return the cost of `spec` as plain values, for JSON.

    `learn_sigma` repeats parameters and MACs for an output of twice the channels, the convention
    of the original DiT.
    """
    this, dit = cost(spec), cost(spec, learn_sigma=True)
    return {
        "model": spec.model.name,
        "routes": [f"{route.in_full} at {route.rates}" for route in spec.routes],
        "tokens": spec.tokens,
        "tokens_per_block": list(this.tokens),
        **_sizes(this),
        "learn_sigma": _sizes(dit),
        "speedup": this.speedup,
        "train_flops_per_image": this.step.flops,
        "train_flops_per_image_dense": cost(spec.dense()).step.flops,
        "train_images": this.images,
        "train_flops": this.train_flops,
        "weights_bytes": this.weights_bytes,
        "checkpoint_bytes": this.checkpoint_bytes,
        "memory_bytes_estimate": this.memory_bytes,
        "memory_bytes_compiled_estimate": cost(spec, compiled=True).memory_bytes,
    }


def table(spec: RunSpec) -> list[tuple[str, str]]:
    """Return the same as texts: (name, value with unit) in reading order."""
    this, compiled = cost(spec), cost(spec, compiled=True).memory_bytes
    named = [f"{route.in_full} at rate {route.rates}" for route in spec.routes]
    routes = ", ".join(named) or "none (dense)"
    return [
        ("model", spec.model.name),
        ("routes", routes),
        *([] if str(spec.bypass) == "route" else [("bypass", str(spec.bypass))]),
        ("tokens per block", _runs(this.tokens)),
        (
            "parameters",
            f"{this.parameters:,} ({this.parameters + this.positions:,} with positions)",
        ),
        *([("of them unsampled", f"{this.unsampled:,}")] if this.unsampled else []),
        *([("beside it", f"{this.auxiliary:,} trained, not sampled")] if this.auxiliary else []),
        *([("teacher", f"{this.teacher:,}, an average")] if this.teacher else []),
        ("forward, dense", f"{this.dense.network / 1e9:,.3f} GMAC"),
        ("forward, routed", f"{this.routed.network / 1e9:,.3f} GMAC"),
        ("speed-up", f"{this.speedup:.3f}x at most"),
        ("training", f"{this.step.flops / 1e12:.4g} TFLOP/image"),
        ("training, all", f"{this.images:,} images, {this.train_flops:.3e} FLOP"),
        ("checkpoint", amount(this.checkpoint_bytes)),
        ("device memory", f"about {amount(this.memory_bytes)} at {this.micro_batch} images a pass"),
        *([("with compiled blocks", f"about {amount(compiled)}")] * (compiled < this.memory_bytes)),
    ]


def _sizes(run_cost: Cost) -> dict[str, int]:
    return {
        "parameters": run_cost.parameters,
        "parameters_with_positions": run_cost.parameters + run_cost.positions,
        "parameters_unsampled": run_cost.unsampled,
        "dense_macs": run_cost.dense.network,
        "routed_macs": run_cost.routed.network,
    }


def _runs(tokens: tuple[int, ...]) -> str:
    """Return `2 x 256, 7 x 128, 3 x 256` for tokens block by block."""
    return ", ".join(f"{len(list(equal))} x {n}" for n, equal in groupby(tokens))
