"""What a training run is: model, data, process, routes, training recipe and seed, all frozen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tread_lab.specs.architecture import BACKBONES, STATE, check_options, name_of, parse_name
from tread_lab.specs.bypass import (
    BypassSpec,
    MaskBypass,
    RouteBypass,
    SprintBypass,
    check_bypass,
)
from tread_lab.specs.decode import added
from tread_lab.specs.errors import UserError, lookup
from tread_lab.specs.extensions import Kind
from tread_lab.specs.loss import LossSpec, PlainLoss
from tread_lab.specs.repa import RepaSpec
from tread_lab.specs.routes import RouteSpec, check_selections, resolve_routes
from tread_lab.specs.sources import SOURCES, resolve_scales

DEEPEST = 10_000  # blocks
SCHEDULES = Kind("schedule", dict.fromkeys(("constant", "sqrt_decay")))
_FP32_AFTER = {"j": 0, "j+1": 1}  # blocks between the end j of a route and the one kept in fp32


def _positive(spec: Any, *names: str) -> None:
    for name in names:
        value = getattr(spec, name)
        if value is not None and value <= 0:
            raise UserError(f"{name}: must be positive, got {value}")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A denoising network of equal blocks; `DiT-S/2` is short for the published size, patch 2.

    Attributes:
        backbone: `dit` (attention), `rwkv` (Diffusion-RWKV) or `mamba` (bidirectional Mamba).
        depth: B, the number of blocks.
        width: d, the width of a token.
        heads: attention heads; must divide the width. Scans have none and forget it.
        patch: p, the side of a patch in latent pixels.
        mlp_ratio: hidden width of the MLP over d; SwiGLU has 2/3 of it. Mamba has no MLP.
        norm, mlp, rope, qk_norm: DiT's block as published, or the parts of LightningDiT's: RMSNorm,
            SwiGLU, rotary positions; its code can also normalise queries and keys, and no published
            configuration does.
        state: S, the state of a Mamba channel.
        init: `adaln_zero` zeroes the modulations and the output last (DiT); `official_code`
            follows the published TREAD code, whose Xavier pass overwrites those zeros.
    """

    backbone: Annotated[str, BACKBONES] = "dit"
    depth: int
    width: int
    heads: int = 0
    patch: int = 2
    mlp_ratio: float = 4.0
    norm: Literal["layer", "rms"] = "layer"
    mlp: Literal["gelu", "swiglu"] = "gelu"
    rope: bool = False
    qk_norm: bool = False
    state: int = STATE
    init: Literal["adaln_zero", "official_code"] = "adaln_zero"

    def __post_init__(self) -> None:
        _positive(self, "depth", "width", "patch", "mlp_ratio", "state")
        if self.depth > DEEPEST:
            raise UserError(f"depth: {self.depth} blocks are more than {DEEPEST:,}")
        if self.heads < 0:
            raise UserError(f"heads: must be positive, got {self.heads}")
        options = check_options(self)
        if self.width % 4:
            raise UserError(f"width: {self.width} is not a multiple of 4 (2-D positions need it)")
        if "heads" not in options:
            object.__setattr__(self, "heads", 0)
        if "mlp_ratio" not in options:
            object.__setattr__(self, "mlp_ratio", 4.0)

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        """`LightningDiT-XL/1` -> depth, width, heads, patch and options."""
        return parse_name(value)

    @property
    def name(self) -> str:
        """`DiT-S/2` for a published size, else `DiT-12x32/2` (depth x width / patch)."""
        return name_of(self)

    @property
    def scans(self) -> bool:
        """Whether tokens are read in order, so that only whole rows may leave."""
        return lookup(BACKBONES, self.backbone, "backbone").scans

    @property
    def hidden(self) -> int:
        """h, the hidden width of the MLP."""
        hidden = int(self.width * self.mlp_ratio)
        return int(2 / 3 * hidden) if self.mlp == "swiglu" else hidden


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where samples come from and what one sample looks like.

    Attributes:
        source: `fashion16` (embedded images), `latents` (packed arrays) or `shards` (webdataset
            tars with `latent.npy` and `cls`).
        path: folder or file of the data; the embedded set needs none.
        channels, size: one sample is channels x size x size.
        classes: number of class labels.
        scale: factor from stored values to what the network sees: 1 for latents that are stored
            scaled, as the official tars are; 0.18215 for what the SD encoder gave. Left out, it
            is 1 for `shards`, and for `latents` what `decoder_scale` says, else 1.
        decoder_scale: what the decoder divides the network's values by (0.18215 for SD's). Left
            out, it is `scale`; for `shards` without either it is 0.18215.
        deviation: standard deviation that the network's values should have; a store far from it
            is refused before training. It is not signed.
    """

    source: Annotated[str, SOURCES] = "fashion16"
    path: str | None = None
    channels: int = 1
    size: int = 16
    classes: int = 10
    scale: float | None = None
    decoder_scale: float | None = added(None)
    deviation: float | None = added(None)

    def __post_init__(self) -> None:
        _positive(self, "channels", "size", "classes", "scale", "decoder_scale", "deviation")
        scale, decoder_scale = resolve_scales(self.source, self.scale, self.decoder_scale)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "decoder_scale", decoder_scale)

    @property
    def scales(self) -> tuple[float, float]:
        """The factor from stored values to the network's, and what the decoder divides these by."""
        assert self.scale is not None
        return self.scale, self.scale if self.decoder_scale is None else self.decoder_scale


@dataclass(frozen=True, kw_only=True)
class EDMSpec:
    """EDM's preconditioning and noise distribution (Karras et al. 2022, table 1)."""

    kind: Literal["edm"] = "edm"
    p_mean: float = -1.2
    p_std: float = 1.2
    sigma_data: float = 0.5

    def __post_init__(self) -> None:
        _positive(self, "p_std", "sigma_data")


@dataclass(frozen=True, kw_only=True)
class FlowSpec:
    """Flow matching on straight paths, as SiT trains (z_t = (1 - t) x + t eps, target eps - x).

    Attributes:
        time: training distribution of t: `logit_normal` is sigmoid(N(0, 1)), or `uniform`.
        direction: weight of the mean of 1 - cos(v, target) over the channels of each place, which
            the loss has beside the squared error; LightningDiT's is 1.
    """

    kind: Literal["flow"] = "flow"
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    direction: float = added(0.0)

    def __post_init__(self) -> None:
        if self.direction < 0:
            raise UserError(f"direction: must not be negative, got {self.direction}")


ProcessSpec = EDMSpec | FlowSpec


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """Exponential moving average of the weights; 0.9999 alone means a fixed decay.

    Attributes:
        decay: decay per step, from step 0 on.
        halflife: half-life as a fraction of all steps; replaces `decay` where given.
    """

    decay: float = 0.9999
    halflife: float | None = None

    def __post_init__(self) -> None:
        _positive(self, "halflife")
        if not 0 <= self.decay < 1:
            raise UserError(f"decay: {self.decay} is outside [0, 1)")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        return {"decay": value}

    def at(self, steps: int) -> float:
        """The decay per step of a run of `steps` steps."""
        return self.decay if self.halflife is None else 0.5 ** (1 / (self.halflife * steps))


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """The training recipe; defaults are the paper's (supplement A.1).

    Attributes:
        steps: optimizer steps.
        batch: global batch in samples.
        schedule: `constant`, or `sqrt_decay`: lr * sqrt(1 - progress), to zero at the end.
        warmup: steps of linear warm-up.
        clip: largest gradient norm, or nothing for no clipping.
        label_drop: probability that a label is replaced by the null class.
    """

    steps: int = 400_000
    batch: int = 256
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Annotated[str, SCHEDULES] = "constant"
    warmup: int = 0
    clip: float | None = None
    ema: EmaSpec = field(default_factory=EmaSpec)
    label_drop: float = 0.1

    def __post_init__(self) -> None:
        _positive(self, "steps", "batch", "lr", "eps", "clip")
        if self.warmup < 0 or self.weight_decay < 0:
            raise UserError("warmup and weight_decay must not be negative")
        if not 0 <= self.label_drop <= 1:
            raise UserError(f"label_drop: {self.label_drop} is outside [0, 1]")
        for beta in self.betas:
            if not 0 <= beta < 1:
                raise UserError(f"betas: {beta} is outside [0, 1)")


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How a run is carried out; nothing here changes what it learns, so nothing is signed.

    Attributes:
        micro_batch: samples per forward pass on one device; the global batch is cut into these.
        log_every: steps between two entries of the log.
        checkpoint_every: steps between two checkpoints.
        keep_checkpoints: newest checkpoints that stay on disk.
        keep_steps: steps after which a checkpoint is written and never removed.
        workers: processes that read data ahead.
    """

    micro_batch: int | None = None
    log_every: int = 100
    checkpoint_every: int = 5_000
    keep_checkpoints: int = 2
    keep_steps: tuple[int, ...] = ()
    workers: int = 0

    def __post_init__(self) -> None:
        _positive(self, "micro_batch", "log_every", "checkpoint_every", "keep_checkpoints")
        if any(step < 1 for step in self.keep_steps):
            raise UserError(f"keep_steps: {list(self.keep_steps)} must be positive steps")


@dataclass(frozen=True, kw_only=True)
class InitSpec:
    """Where a run starts: from the last checkpoint of another run, its parent.

    Optimizer, EMA, learning rate and step count start anew.

    Attributes:
        run: the parent, complete; its signature is part of the child's.
        weights: the parent's EMA or raw weights.
    """

    run: RunSpec
    weights: Literal["ema", "model"] = "ema"


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run, complete: everything that decides what is learned, and how it is executed.

    Attributes:
        routes: sequential, disjoint routes; none is the dense network.
        bypass: how routed tokens get around a route; without routes there is none.
        routes_from, routes_until: steps at which the routes are switched on and off, as numbers or
            as fractions of all steps; in the other steps the same network trains densely.
        loss: what is minimised; without routes the plain loss.
        repa: alignment with a frozen encoder, where given.
        init_from: the run whose weights this one starts from, where given.
        precision: arithmetic of the forward and backward pass; weights stay fp32. `tf32` rounds
            the inputs of matrix products, `fp16` scales the loss and skips steps that overflow.
        fp32_block: which block around the end j of a route is kept in fp32 under bf16 and fp16: the
            paper says `j`, the official code does `j+1`. On a GPU its matrix products run in tf32,
            as in the official code. It is `off` where there is nothing to keep: without a route, in
            fp32 and in tf32.
        seed: names every random draw of the run together with (step, sample).
    """

    model: ModelSpec
    data: DataSpec = field(default_factory=DataSpec)
    process: ProcessSpec = field(default_factory=EDMSpec)
    routes: tuple[RouteSpec, ...] = ()
    bypass: BypassSpec = field(default_factory=RouteBypass)
    routes_from: int | float = 0
    routes_until: int | float | None = None
    loss: LossSpec = field(default_factory=PlainLoss)
    repa: RepaSpec | None = None
    init_from: InitSpec | None = None
    train: TrainSpec = field(default_factory=TrainSpec)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16"
    fp32_block: Literal["off", "j", "j+1"] = "j+1"
    seed: int = 0
    execution: ExecutionSpec = field(default_factory=ExecutionSpec)

    def __post_init__(self) -> None:
        if self.data.size % self.model.patch:
            raise UserError(
                f"model.patch: {self.model.patch} does not divide data.size {self.data.size}"
            )
        if self.seed < 0:
            raise UserError(f"seed: must not be negative, got {self.seed}")
        self._resolve_routes()
        if self.repa is not None:
            block = self.repa.block_of(self.model.depth)
            object.__setattr__(self, "repa", dataclasses.replace(self.repa, block=block))
        if self.init_from is not None and self.init_from.run.network != self.network:
            raise UserError(
                "init_from.run: trains another network (model, data or bypass); to go on densely"
                " after masking or sprint keep routes and bypass and say routes_until: 0"
            )

    def _resolve_routes(self) -> None:
        """Routes as block numbers, their steps as numbers; what means nothing without routes goes,
        so that equal runs are equal specs."""
        routes = resolve_routes(self.routes, self.model.depth)
        check_selections(routes, self.tokens, scans=self.model.scans)
        first = self._step("routes_from", self.routes_from)
        last: int | None = self._step("routes_until", self.routes_until)
        resolved: dict[str, Any] = {"routes_from": first, "routes_until": last}
        if last is not None and last >= self.train.steps:
            resolved["routes_until"] = None
        if not routes:
            resolved = {"routes_from": 0, "routes_until": None}
            resolved |= {"bypass": RouteBypass(), "loss": PlainLoss()}
        else:
            check_bypass(self.bypass, routes, self.model.depth)
        if routes and isinstance(self.bypass, SprintBypass):
            dense_steps = first > 0 or resolved["routes_until"] is not None
            resolved["bypass"] = self.bypass.resolved(dense_steps=dense_steps)
        if not routes or self.precision in ("fp32", "tf32"):
            resolved["fp32_block"] = "off"
        for name, value in {**resolved, "routes": routes}.items():
            object.__setattr__(self, name, value)

    def _step(self, name: str, value: Any) -> Any:
        """A step as written, a fraction of all steps rounded to the nearest."""
        if value is None:
            return None
        if value < 0 or (isinstance(value, float) and value > 1):
            raise UserError(f"{name}: {value} is no step; write 500 or a fraction such as 0.9")
        return round(value * self.train.steps) if isinstance(value, float) else value

    @property
    def tokens(self) -> int:
        """N, the tokens of one sample."""
        return (self.data.size // self.model.patch) ** 2

    @property
    def fp32_blocks(self) -> frozenset[int]:
        """The blocks that stay in fp32: around the end j of every route, after `fp32_block`."""
        if self.fp32_block == "off":
            return frozenset()
        after = lookup(_FP32_AFTER, self.fp32_block, "fp32_block")
        ends = (route.blocks[-1] + after for route in self.routes)
        return frozenset(l for l in ends if l < self.model.depth)

    @property
    def routed_steps(self) -> range:
        """The steps in which the routes are on."""
        steps = self.train.steps
        last = steps if self.routes_until is None else int(self.routes_until)
        return range(min(int(self.routes_from), steps), last) if self.routes else range(0)

    @property
    def ancestors(self) -> tuple[RunSpec, ...]:
        """The runs that this one descends from, the eldest first."""
        if self.init_from is None:
            return ()
        return (*self.init_from.run.ancestors, self.init_from.run)

    @property
    def network(self) -> Any:
        """What decides which weights there are; equal for runs that can hand them on."""
        shape = (self.data.channels, self.data.size, self.data.classes)
        model = dataclasses.replace(self.model, init="adaln_zero")
        decoder = None
        if isinstance(self.bypass, MaskBypass):
            decoder = dataclasses.replace(self.bypass, adapter="zero")
        spans = tuple((route.start, route.end) for route in self.routes)
        return model, shape, decoder, spans if self.bypass.kind == "sprint" else ()

    def dense(self) -> RunSpec:
        """A run of the same size and length without routes, and without a parent."""
        return dataclasses.replace(self, routes=(), init_from=None)
