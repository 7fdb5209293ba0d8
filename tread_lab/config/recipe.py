"""How a run is trained: the process, the loss, steps, batch and optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tread_lab.config.decode import (
    Count,
    Natural,
    NotNegative,
    Positive,
    Rate,
    Share,
    settle,
    within,
)
from tread_lab.config.errors import UserError
from tread_lab.config.registry import Registry, SystemSpec, Variants, import_plugins

if TYPE_CHECKING:
    from tread_lab.config.run import RunSpec

DDPM_LEVELS = 1_000


@dataclass(frozen=True, kw_only=True)
class EDMSpec:
    """EDM's preconditioning and noise distribution (Karras et al. 2022, table 1)."""

    kind: Literal["edm"] = "edm"
    p_mean: float = -1.2
    p_std: Positive = 1.2
    sigma_data: Positive = 0.5


@dataclass(frozen=True, kw_only=True)
class FlowSpec:
    """Flow matching on straight paths, as SiT trains (z_t = (1 - t) x + t eps, target eps - x).

    Attributes:
        time: training distribution of t: `logit_normal` is sigmoid(N(0, 1)), or `uniform`.
        direction: weight of 1 - cos(v, target) over channels, added to the squared error; 1 in
            LightningDiT.
        shift: s of t' = s t / (1 + (s - 1) t), in training and in sampling (Esser et al. 2024, eq.
            23): sqrt(m / n) for m latent values if n values use no shift.
        prediction: output of the network: `v`, or the clean sample `x` with the loss on v = (z - x)
            / max(t, 0.05), as in JiT (Li & He 2025).
    """

    kind: Literal["flow"] = "flow"
    time: Literal["logit_normal", "uniform"] = "logit_normal"
    direction: NotNegative = 0.0
    shift: Positive = 1.0
    prediction: Literal["v", "x"] = "v"


@dataclass(frozen=True, kw_only=True)
class DDPMSpec:
    """DDPM as DiT trains it: 1,000 levels, betas from 1e-4 to 2e-2 in even steps, noise as target.

    Attributes:
        learned_variance: doubles the output channels; the second half is trained by the variational
            bound (Nichol & Dhariwal 2021), as in DiT's published checkpoints.
    """

    kind: Literal["ddpm"] = "ddpm"
    learned_variance: bool = True


ProcessSpec = EDMSpec | FlowSpec | DDPMSpec


def outputs(process: ProcessSpec) -> int:
    """Return the channels of the network's output for each channel of a sample."""
    return 2 if isinstance(process, DDPMSpec) and process.learned_variance else 1


@dataclass(frozen=True, kw_only=True)
class Loss(SystemSpec):
    """Base of all losses; `kind` is its name.

    Attributes:
        dense: whether it applies to runs without routes.
    """

    dense: ClassVar[bool] = False

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class PlainLoss(Loss):
    """The process's loss over all tokens, as in TREAD (ICCV 2025) and its code."""

    kind: Literal["plain"] = "plain"

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True)
class EnsembleLoss(Loss):
    """TREAD v1: (1/N) sum_k [L_dsm^k + lambda L_mae^k] over N routes with masks m_k (1 = routed).

    The paper (arXiv 2501.04765v1) and the first code disagree; both forms are available:
    `equation`: L_dsm = E ||(1 - m) (D(x0 + n) - x0)||^2, L_mae = E ||m (D(x0 + n) - x0)||^2, each a
        mean over **all** places.
    `code`: L_dsm is averaged over the kept patches; the target of L_mae is the **noisy** sample
        x0 + n, every patch normalised to mean 0 and variance 1, averaged over the routed patches.

    Attributes:
        weight: lambda; 0 leaves the loss over kept tokens.
        noise_weight: terms with the process's noise-level weight: `dsm` (the code), `none` (the
            printed equation), or `both`, for which the equation at lambda 1 is the plain loss.
    """

    kind: Literal["ensemble"] = "ensemble"
    form: Literal["equation", "code"] = "equation"
    weight: NotNegative = 0.1
    noise_weight: Literal["dsm", "both", "none"] = "dsm"

    def resolved(self, run: RunSpec) -> EnsembleLoss:
        """Return the loss with `both` replaced by `dsm` if they are equal: lambda is 0, or all
        levels have equal weight."""
        same = self.weight == 0 or not isinstance(run.process, EDMSpec)
        return replace(self, noise_weight="dsm") if same and self.noise_weight == "both" else self

    def __str__(self) -> str:
        return f"{self.form} {self.weight:g}"


@dataclass(frozen=True, kw_only=True)
class ContrastiveLoss(Loss):
    """Contrastive flow matching (Stoica et al. 2025): |v - u|^2 - lambda |v - u'|^2, u' = eps' - x'
    of the batch's next sample. Held-out loss stays |v - u|^2.

    Attributes:
        weight: lambda.
    """

    dense: ClassVar[bool] = True
    kind: Literal["contrastive"] = "contrastive"
    weight: Rate = 0.05

    def resolved(self, run: RunSpec) -> ContrastiveLoss:
        """Return the loss; refuse a process without velocity, and a batch without another sample.

        Raises:
            UserError: one of these is missing.
        """
        if not isinstance(run.process, FlowSpec) or run.train.batch < 2:
            raise UserError(
                "loss: contrastive requires a flow and a batch of 2 or more. Try process=flow."
            )
        return self

    def __str__(self) -> str:
        return f"contrastive {self.weight:g}"


LOSSES = Variants("loss", PlainLoss, EnsembleLoss, ContrastiveLoss)


SCHEDULES = Registry("schedule", dict.fromkeys(("constant", "sqrt_decay")))


@dataclass(frozen=True, kw_only=True)
class EmaSpec:
    """Exponential moving average of the weights; 0.9999 alone means a fixed decay.

    Attributes:
        decay: decay per step, from step 0 on.
        halflife: half-life as a fraction of all steps; replaces `decay`.
        snapshots: evenly spaced steps at which EDM2's two averages are stored, from which an
            evaluation's `ema` is reconstructed; try 32.
    """

    decay: Rate = 0.9999
    halflife: Positive | None = None
    snapshots: Natural = 0

    def __post_init__(self) -> None:
        if self.halflife is not None and self.decay != EmaSpec.decay:
            raise UserError(
                f"decay: has no effect beside a half-life, got {self.decay}. Write halflife: null,"
                f" or decay: {EmaSpec.decay}."
            )

    @staticmethod
    def from_shorthand(value: Any) -> dict[str, Any]:
        return {"decay": value}

    def at(self, steps: int) -> float:
        """The decay per step of a run of `steps` steps."""
        if self.halflife is None or not steps:
            return self.decay
        return float(0.5 ** (1 / (self.halflife * steps)))

    def snapshot_steps(self, steps: int) -> list[int]:
        """The steps at which a run of `steps` steps stores its averages, including the last."""
        shares = (number * steps / self.snapshots for number in range(1, self.snapshots + 1))
        return sorted({round(share) for share in shares} - {0})

    def initial(self, steps: int) -> float:
        """The share of the initial weights in the average after `steps` steps."""
        return self.at(steps) ** steps


StepOrShare = Annotated[int | float, within("[0, inf)")]


def step_at(field: str, value: float, steps: int) -> int:
    """Return a step as written; a fraction of all steps is rounded to the nearest step.

    Raises:
        UserError: a fraction above 1.
    """
    if isinstance(value, float) and value <= 1:
        return round(value * steps)
    if not float(value).is_integer():
        raise UserError(f"{field}: must be a step or a fraction, got {value}. Try 30 or 0.04.")
    return int(value)


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """The training recipe; defaults are the paper's (supplement A.1).

    Attributes:
        steps: optimizer steps; 0 keeps the starting weights.
        batch: global batch in samples.
        optimizer: `adamw`, or `muon`: Muon (Jordan et al. 2024) for the matrices of the blocks,
            with updates of AdamW's size (Liu et al. 2025), and AdamW for everything else.
        matrix_lr: learning rate of Muon at its peak; `None` for `lr`.
        schedule: `constant`, or `sqrt_decay`: lr * sqrt(1 - progress), to zero at the end.
        warmup: steps of linear warm-up, as a number or as a fraction of all steps.
        clip: largest gradient norm; `None` for no clipping.
        label_drop: probability that a label is replaced by the null class.
    """

    steps: Natural = 400_000
    batch: Count = 256
    optimizer: Literal["adamw", "muon"] = "adamw"
    lr: Positive = 1e-4
    matrix_lr: Positive | None = None
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    schedule: Annotated[str, SCHEDULES] = "constant"
    warmup: StepOrShare = 0
    clip: Positive | None = None
    ema: EmaSpec = field(default_factory=EmaSpec)
    label_drop: Share = 0.1

    def __post_init__(self) -> None:
        if self.matrix_lr is not None and self.optimizer != "muon":
            raise UserError("matrix_lr: requires Muon. Try optimizer: muon.")
        matrix_lr = None if self.matrix_lr == self.lr else self.matrix_lr
        warmup = step_at("warmup", self.warmup, self.steps)
        settle(self, matrix_lr=matrix_lr, warmup=warmup)


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """Execution settings, which do not change the trained weights and are not in the signature.

    Attributes:
        micro_batch: samples per forward pass on one device.
        log_every: steps between two entries of the log.
        checkpoint_every: steps between two checkpoints.
        keep_checkpoints: newest checkpoints that stay on disk.
        keep_steps: steps whose checkpoints are never removed.
        workers: threads that read data ahead; at least two for a GPU.
        compile: `blocks` compiles each block, `none` runs eagerly, `auto` compiles on a GPU.
            Results differ in the last bits; the provenance records the choice.
        deterministic: bitwise reproducible on a GPU too, but slower; some kernels, e.g. flash
            attention backward above 256 tokens, otherwise add in any order.
        plugins: modules to import, from `plugins` of the file.
    """

    micro_batch: Count | None = None
    log_every: Count = 100
    checkpoint_every: Count = 5_000
    keep_checkpoints: Count = 2
    keep_steps: tuple[Count, ...] = ()
    workers: Natural = 0
    compile: Literal["auto", "blocks", "none"] = "auto"
    deterministic: bool = False
    plugins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        import_plugins(self.plugins)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Import them in each process that the run is sent to."""
        import_plugins(state["plugins"])
        vars(self).update(state)

    @property
    def kernels(self) -> tuple[str, bool]:
        """Settings that select kernels, and thereby the last bits and the time of a step."""
        return self.compile, self.deterministic
