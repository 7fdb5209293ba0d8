"""What is trained: the process (EDM, flow matching or DDPM), the loss, and REPA's alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tread_lab.specs.decode import added
from tread_lab.specs.errors import UserError, check_positive, lookup
from tread_lab.specs.routes import Position, block_index

# What is done to an image before the encoder and to its features after; another text is another
# cache of features.
PREPROCESSING = (
    "normalised, bicubic to 14 pixels a token, no antialias, no clamp; positions antialiased"
)
SHALLOW = 12  # blocks of S and B, where the published alignment is after the fourth

DDPM_LEVELS = 1_000

# encoder -> width of its features
ENCODERS = {
    "fashion16-v1": 64,
    "dinov2-small": 384,
    "dinov2-base": 768,
    "dinov2-large": 1024,
    "dinov2-giant": 1536,
}


@dataclass(frozen=True, kw_only=True)
class EDMSpec:
    """EDM's preconditioning and noise distribution (Karras et al. 2022, table 1)."""

    kind: Literal["edm"] = "edm"
    p_mean: float = -1.2
    p_std: float = 1.2
    sigma_data: float = 0.5

    def __post_init__(self) -> None:
        check_positive(self, "p_std", "sigma_data")


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


@dataclass(frozen=True, kw_only=True)
class DDPMSpec:
    """DDPM as DiT trains it: 1,000 levels, betas from 1e-4 to 2e-2 in even steps, noise as target.

    Attributes:
        learned_variance: the network has twice the channels, and its second half is trained by the
            variational bound (Nichol & Dhariwal 2021); the published checkpoints of DiT have it.
    """

    kind: Literal["ddpm"] = "ddpm"
    learned_variance: bool = True


ProcessSpec = EDMSpec | FlowSpec | DDPMSpec


def outputs(process: ProcessSpec) -> int:
    """Return the channels of the network's output for each channel of a sample."""
    return 2 if isinstance(process, DDPMSpec) and process.learned_variance else 1


@dataclass(frozen=True, kw_only=True)
class PlainLoss:
    """The process's own loss over all tokens: what TREAD (ICCV 2025) and its code train."""

    kind: Literal["plain"] = "plain"

    def __str__(self) -> str:
        return "plain"


@dataclass(frozen=True, kw_only=True)
class EnsembleLoss:
    """TREAD v1: (1/N) sum_k [L_dsm^k + lambda L_mae^k] over N routes with masks m_k (1 = routed).

    Its paper (arXiv 2501.04765v1) and the first code disagree; both are here:
    `equation`: L_dsm = E ||(1 - m) (D(x0 + n) - x0)||^2, L_mae = E ||m (D(x0 + n) - x0)||^2, each a
        mean over **all** places, of which it has its own.
    `code`: L_dsm is averaged over the kept patches; the target of L_mae is the **noisy** sample
        x0 + n, every patch normalised to mean 0 and variance 1, averaged over the routed patches.

    Attributes:
        weight: lambda; 0 leaves the loss over kept tokens.
        noise_weight: which terms carry the process's weight of the noise level: `dsm` as the code
            does; `none` as the equation is printed; `both`, with which the equation at lambda 1 is
            the plain loss.
    """

    kind: Literal["ensemble"] = "ensemble"
    form: Literal["equation", "code"] = "equation"
    weight: float = 0.1
    noise_weight: Literal["dsm", "both", "none"] = "dsm"

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise UserError(f"weight: must not be negative, got {self.weight}")

    def __str__(self) -> str:
        return f"{self.form} {self.weight:g}"


@dataclass(frozen=True, kw_only=True)
class BothLoss:
    """L_full + weight * L_masked: a dense pass and one under the routes, each with the plain loss.

    MDT (Gao et al. 2023, section 3.4) trains so, with weight 1. Both passes see the same noise and
    noise level; its code draws the noise of the second pass anew. In steps without routes it is the
    plain loss.

    Attributes:
        weight: of the pass under the routes.
    """

    kind: Literal["both"] = "both"
    weight: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self, "weight")

    def __str__(self) -> str:
        return "both" if self.weight == 1 else f"both {self.weight:g}"


@dataclass(frozen=True, kw_only=True)
class DiscriminationLoss:
    """SD-DiT (Zhu et al. 2024): L_G + weight * L_D, the plain loss and self-distillation.

    A teacher, the moving average of the encoder and of its head, sees all tokens of the sample with
    the same noise at a level near zero. L_D is the cross-entropy between its distribution over
    prototypes and the student's, a mean over the tokens that the student's encoder sees; centring
    and sharpening are DINO's (Caron et al. 2021, eq. 1 and 4).

    The paper's own numbers were not at hand for what stands here: the defaults of the head, the
    temperatures, momenta and the weight are DINO's and iBOT's, whose loss it takes over, and 1.

    Attributes:
        weight: of L_D.
        level: noise level of the teacher's samples; 0.002 is EDM's sigma_min.
        prototypes: K, outputs of the head.
        hidden, bottleneck: widths of the head's MLP, and of what it compares with the prototypes.
        momentum: of the teacher, per step.
        center_momentum: of the centre of the teacher's outputs, per step.
        student_temperature, teacher_temperature: of the two distributions.
    """

    kind: Literal["discrimination"] = "discrimination"
    weight: float = 1.0
    level: float = 0.002
    prototypes: int = 8192
    hidden: int = 2048
    bottleneck: int = 256
    momentum: float = 0.996
    center_momentum: float = 0.9
    student_temperature: float = 0.1
    teacher_temperature: float = 0.04

    def __post_init__(self) -> None:
        check_positive(self, "weight", "level", "prototypes", "hidden", "bottleneck")
        check_positive(self, "student_temperature", "teacher_temperature")
        for name in ("momentum", "center_momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}: {getattr(self, name)} is outside [0, 1]")

    def __str__(self) -> str:
        return "discrimination" if self.weight == 1 else f"discrimination {self.weight:g}"


LossSpec = PlainLoss | EnsembleLoss | BothLoss | DiscriminationLoss


@dataclass(frozen=True, kw_only=True)
class RepaSpec:
    """- weight * cos(projector(h), encoder(x0)), over tokens that ran the block (Yu et al. 2025).

    Tokens that skip the block are not aligned: kept ones only if it lies inside a route. The
    projector, an MLP of three layers, is trained with the network but is not part of what samples.

    Attributes:
        encoder: whose features of the clean image are the target.
        target: the image that is encoded: the stored `image` as in the published code
            (`images.npy` beside the latents), or what the autoencoder makes of the latent,
            `decoded`, where only latents exist.
        block: h is the residual stream after this block; REPA's "depth 8" is block 7. By default
            block 3 of S and B (12 blocks), block 7 of L and XL, as in REPA.
        weight: REPA's coefficient.
        hidden: width of the projector.
        path: folder or hub id of a DINOv2, else TREAD_LAB_ENCODER; not part of the signature.
    """

    encoder: str = "dinov2-base"
    target: Literal["image", "decoded"] = "image"
    block: Position | None = None
    weight: float = 0.5
    hidden: int = 2048
    path: str | None = None

    def __post_init__(self) -> None:
        lookup(ENCODERS, self.encoder, "encoder")
        if self.weight <= 0 or self.hidden < 1:
            raise UserError("weight, hidden: must be positive")

    def __str__(self) -> str:
        return f"repa {self.weight:g} at {self.block}"

    @property
    def features(self) -> int:
        """The width of the encoder's features."""
        return ENCODERS[self.encoder]

    def block_of(self, depth: int) -> int:
        """Return the aligned block of a network of `depth` blocks.

        Raises:
            UserError: there is no such block.
        """
        if self.block is None:
            return min(3 if depth <= SHALLOW else 7, depth - 1)
        block = block_index(self.block, depth)
        if not 0 <= block < depth:
            raise UserError(f"repa.block: {block} leaves the network: blocks are 0..{depth - 1}")
        return block
