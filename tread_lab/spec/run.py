"""What a training run is: model, data, process, routes, training recipe and seed, all frozen."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from tread_lab.spec.architecture import STATE, check_options, name_of, parse_name
from tread_lab.spec.errors import UserError
from tread_lab.spec.routes import RouteSpec, check_selections, resolve_routes


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
            SwiGLU, rotary positions, normalised queries and keys.
        state: S, the state of a Mamba channel.
        init: `adaln_zero` zeroes the modulations and the output last (DiT); `official_code`
            follows the published TREAD code, whose Xavier pass overwrites those zeros.
    """

    backbone: Literal["dit", "rwkv", "mamba"] = "dit"
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
        if self.heads < 0:
            raise UserError(f"heads: must be positive, got {self.heads}")
        check_options(self)
        if self.width % 4:
            raise UserError(f"width: {self.width} is not a multiple of 4 (2-D positions need it)")
        if self.scans:
            object.__setattr__(self, "heads", 0)
        if self.backbone == "mamba":
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
        return self.backbone != "dit"

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
        scale: factor on stored values (0.18215 for the SD autoencoder's latents).
    """

    source: Literal["fashion16", "latents", "shards"] = "fashion16"
    path: str | None = None
    channels: int = 1
    size: int = 16
    classes: int = 10
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive(self, "channels", "size", "classes", "scale")


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
    """

    kind: Literal["flow"] = "flow"
    time: Literal["logit_normal", "uniform"] = "logit_normal"


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
    schedule: Literal["constant", "sqrt_decay"] = "constant"
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
        compile: run the blocks through torch.compile.
    """

    micro_batch: int | None = None
    log_every: int = 100
    checkpoint_every: int = 5_000
    keep_checkpoints: int = 2
    keep_steps: tuple[int, ...] = ()
    workers: int = 0
    compile: bool = False

    def __post_init__(self) -> None:
        _positive(self, "micro_batch", "log_every", "checkpoint_every", "keep_checkpoints")
        if any(step < 1 for step in self.keep_steps):
            raise UserError(f"keep_steps: {list(self.keep_steps)} must be positive steps")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run, complete: everything that decides what is learned, and how it is executed.

    Attributes:
        routes: sequential, disjoint routes; none is the dense network.
        precision: arithmetic of the forward and backward pass; weights stay fp32. `tf32` rounds
            the inputs of matrix products, `fp16` scales the loss and skips steps that overflow.
        fp32_block: which block around the end j of a route is kept in fp32 under bf16 and fp16: the
            paper says `j`, the official code does `j+1`. It is `off` where there is nothing to
            keep: without a route, in fp32 and in tf32.
        seed: names every random draw of the run together with (step, sample).
    """

    model: ModelSpec
    data: DataSpec = field(default_factory=DataSpec)
    process: ProcessSpec = field(default_factory=EDMSpec)
    routes: tuple[RouteSpec, ...] = ()
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
        routes = resolve_routes(self.routes, self.model.depth)
        check_selections(routes, self.tokens, scans=self.model.scans)
        object.__setattr__(self, "routes", routes)
        if not routes or self.precision in ("fp32", "tf32"):
            object.__setattr__(self, "fp32_block", "off")

    @property
    def tokens(self) -> int:
        """N, the tokens of one sample."""
        return (self.data.size // self.model.patch) ** 2

    def dense(self) -> RunSpec:
        """The same run without routes."""
        return dataclasses.replace(self, routes=())
