"""The training recipe, and how a run is executed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tread_lab.specs.decode import added
from tread_lab.specs.errors import UserError, check_positive
from tread_lab.specs.extensions import Kind

SCHEDULES = Kind("schedule", dict.fromkeys(("constant", "sqrt_decay")))


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
        check_positive(self, "halflife")
        if not 0 <= self.decay < 1:
            raise UserError(f"decay: {self.decay} is outside [0, 1)")

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        return {"decay": value}

    def at(self, steps: int) -> float:
        """The decay per step of a run of `steps` steps."""
        if self.halflife is None or not steps:
            return self.decay
        return float(0.5 ** (1 / (self.halflife * steps)))


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """The training recipe; defaults are the paper's (supplement A.1).

    Attributes:
        steps: optimizer steps; with 0 a run is the weights that it starts from.
        batch: global batch in samples.
        schedule: `constant`, or `sqrt_decay`: lr * sqrt(1 - progress), to zero at the end.
        warmup: steps of linear warm-up, as a number or as a fraction of all steps.
        clip: largest gradient norm; `None` for no clipping.
        label_drop: probability that a label is replaced by the null class.
    """

    steps: int = 400_000
    batch: int = 256
    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    schedule: Annotated[str, SCHEDULES] = "constant"
    warmup: int | float = 0
    clip: float | None = None
    ema: EmaSpec = field(default_factory=EmaSpec)
    label_drop: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self, "batch", "lr", "eps", "clip")
        if isinstance(self.warmup, float):
            share = self.warmup if self.warmup.is_integer() else self.warmup * self.steps
            if not self.warmup.is_integer() and self.warmup > 1:
                raise UserError(f"warmup: {self.warmup} is no step; write 30 or a fraction: 0.04")
            object.__setattr__(self, "warmup", round(share))
        if self.steps < 0:
            raise UserError(f"steps: must not be negative, got {self.steps}")
        if self.warmup < 0 or self.weight_decay < 0:
            raise UserError("warmup and weight_decay must not be negative")
        if not 0 <= self.label_drop <= 1:
            raise UserError(f"label_drop: {self.label_drop} is outside [0, 1]")
        for beta in self.betas:
            if not 0 <= beta < 1:
                raise UserError(f"betas: {beta} is outside [0, 1)")


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How a run is executed; no field changes what the run learns, so none is in its signature.

    Attributes:
        micro_batch: samples per forward pass on one device; the global batch is cut into these.
        log_every: steps between two entries of the log.
        checkpoint_every: steps between two checkpoints.
        keep_checkpoints: newest checkpoints that stay on disk.
        keep_steps: steps after which a checkpoint is written and never removed.
        workers: threads that read data ahead; at least two for a GPU.
        compile: `blocks` compiles every block by itself, `none` runs them eagerly; `auto` compiles
            on a GPU. Results differ in the last bits, so the provenance of a run says which.
        cuda_graph: whether a GPU replays the training step as one CUDA graph, which helps where it
            waits for the host: small blocks, few images. The learning rate is then an fp32 number,
            so the provenance of a run says this, too. A CPU has no graphs and goes on without.
        attention: `measured` attends over each number of tokens by the backend that is fastest on
            this model of device, measured once for a lab; `torch` leaves the choice to torch.
        deterministic: whether equal runs have equal bits on a GPU, too, where kernels such as the
            backward pass of flash attention above 256 tokens else add in any order; slower.
    """

    micro_batch: int | None = None
    log_every: int = 100
    checkpoint_every: int = 5_000
    keep_checkpoints: int = 2
    keep_steps: tuple[int, ...] = ()
    workers: int = 0
    compile: Literal["auto", "blocks", "none"] = added("auto")
    cuda_graph: bool = added(False)
    attention: Literal["torch", "measured"] = added("torch")
    deterministic: bool = added(False)

    def __post_init__(self) -> None:
        check_positive(self, "micro_batch", "log_every", "checkpoint_every", "keep_checkpoints")
        if any(step < 1 for step in self.keep_steps):
            raise UserError(f"keep_steps: {list(self.keep_steps)} must be positive steps")

    @property
    def kernels(self) -> tuple[str, bool, str, bool]:
        """What decides which kernels compute a step, and with them its last bits and its time."""
        return self.compile, self.cuda_graph, self.attention, self.deterministic
